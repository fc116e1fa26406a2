# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The README's C++ compiles as it stands there, with no other header than it includes.  A block with a main() is a
# program, which must run as well; all others are what follows `using namespace tessera`, each a source by itself.
set(readme "${PROJECT_SOURCE_DIR}/README.md")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${readme}")
set(folder "${CMAKE_CURRENT_BINARY_DIR}/readme_sources")

# The #include lines of TEXT, and what is left of it.
function(tessera_split_includes text includes rest)
  set(found "")
  while(text MATCHES "(^|\n)(#include [^\n]*\n)")
    string(APPEND found "${CMAKE_MATCH_2}")
    string(REPLACE "${CMAKE_MATCH_2}" "" text "${text}")
  endwhile()
  set(${includes} "${found}" PARENT_SCOPE)
  set(${rest} "${text}" PARENT_SCOPE)
endfunction()

set(fragments "")
set(programs 0)
set(blocks 0)
set(fence "```cpp\n")
string(LENGTH "${fence}" fence_length)
file(READ "${readme}" rest)
string(FIND "${rest}" "${fence}" at)
while(NOT at EQUAL -1)
  math(EXPR at "${at} + ${fence_length}")
  string(SUBSTRING "${rest}" ${at} -1 rest)
  string(FIND "${rest}" "\n```" end)
  string(SUBSTRING "${rest}" 0 ${end} block)
  math(EXPR blocks "${blocks} + 1")
  if(block MATCHES "int main\\(")
    math(EXPR programs "${programs} + 1")
    file(CONFIGURE OUTPUT "${folder}/program_${programs}.cpp" CONTENT "${block}\n" @ONLY)
    add_executable(tessera_readme_${programs} "${folder}/program_${programs}.cpp")
    target_link_libraries(tessera_readme_${programs} PRIVATE tessera::tessera)
    add_test(NAME "check: the README's program ${programs} runs" COMMAND tessera_readme_${programs})
    set_tests_properties("check: the README's program ${programs} runs" PROPERTIES LABELS check)
  else()
    tessera_split_includes("${block}" includes block)
    file(CONFIGURE OUTPUT "${folder}/fragment_${blocks}.cpp"
      CONTENT "${includes}using namespace tessera;\n${block}\n" @ONLY)
    list(APPEND fragments "${folder}/fragment_${blocks}.cpp")
  endif()
  string(FIND "${rest}" "${fence}" at)
endwhile()
if(programs EQUAL 0 OR blocks EQUAL programs)
  message(FATAL_ERROR "${readme} shows ${programs} programs in ${blocks} blocks of C++; this check reads them wrongly")
endif()
set_tests_properties("check: the README's program 1 runs" PROPERTIES
  PASS_REGULAR_EXPRESSION "^[0-9]+\\.[0-9][0-9] bits a weight")

# None of them runs, so that half of a compiler's time is saved. They say again what the library's aliases are, which
# clang takes for shadowing.
function(tessera_compile_examples name)
  add_test(NAME "compile: examples, ${name}"
    COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-shadow
      "-I${PROJECT_SOURCE_DIR}/include" ${ARGN})
  set_tests_properties("compile: examples, ${name}" PROPERTIES LABELS compile TIMEOUT 600)
endfunction()
tessera_compile_examples("README" ${fragments})

include("${CMAKE_CURRENT_LIST_DIR}/header_examples.cmake")
