# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The C++ of the README and of some pages compiles as it stands there, with no other header than it includes.  A block
# with a main() is a program, which must run as well; one below `<!-- excerpt: PATH -->` has lines of that program, and
# the block of text below it is what that prints; all others are what follows `using namespace tessera`, each a source
# by itself.
set(pages README.md docs/guide.md docs/exchanges.md)
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

# Complains unless each line of CODE stands in the program PATH, in this order, and its paper's page shows OUTPUT as
# what it prints (tests/examples/hello.cmake compares that with what it does print).
function(tessera_check_excerpt path code output)
  get_filename_component(name "${path}" NAME_WE)
  file(READ "${PROJECT_SOURCE_DIR}/${path}" program)
  file(READ "${PROJECT_SOURCE_DIR}/docs/papers/${name}.md" page)
  string(FIND "${page}" "\n```text\n${output}\n```\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "README.md says that ${path} prints what docs/papers/${name}.md does not show:\n${output}")
  endif()
  string(APPEND code "\n")
  while(NOT code STREQUAL "")
    string(FIND "${code}" "\n" end)
    string(SUBSTRING "${code}" 0 ${end} line)
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${code}" ${end} -1 code)
    string(STRIP "${line}" line)
    string(FIND "${program}" "${line}\n" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "README.md shows this line of ${path}, which is not there, or not in this order:\n${line}")
    endif()
    string(SUBSTRING "${program}" ${at} -1 program)
  endwhile()
endfunction()

set(fragments "")
set(programs 0)
set(blocks 0)
set(excerpts 0)
set(fence "```cpp\n")
string(LENGTH "${fence}" fence_length)
foreach(page IN LISTS pages)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${page}")
  file(READ "${PROJECT_SOURCE_DIR}/${page}" rest)
  string(FIND "${rest}" "${fence}" at)
  while(NOT at EQUAL -1)
    string(SUBSTRING "${rest}" 0 ${at} before)
    math(EXPR at "${at} + ${fence_length}")
    string(SUBSTRING "${rest}" ${at} -1 rest)
    string(FIND "${rest}" "\n```" end)
    string(SUBSTRING "${rest}" 0 ${end} block)
    math(EXPR blocks "${blocks} + 1")
    if(before MATCHES "<!-- excerpt: ([a-z_0-9/.]+) -->\n$")
      set(path "${CMAKE_MATCH_1}")
      string(REGEX MATCH "\n```\n\n```text\n([^`]*)\n```" found "${rest}")
      tessera_check_excerpt("${path}" "${block}" "${CMAKE_MATCH_1}")
      math(EXPR excerpts "${excerpts} + 1")
    elseif(block MATCHES "int main\\(")
      math(EXPR programs "${programs} + 1")
      file(CONFIGURE OUTPUT "${folder}/program_${programs}.cpp" CONTENT "${block}\n" @ONLY)
      add_executable(tessera_readme_${programs} "${folder}/program_${programs}.cpp")
      target_link_libraries(tessera_readme_${programs} PRIVATE tessera::tessera)
      add_test(NAME "check: the guide's program ${programs} runs" COMMAND tessera_readme_${programs})
      set_tests_properties("check: the guide's program ${programs} runs" PROPERTIES LABELS check)
    else()
      tessera_split_includes("${block}" includes block)
      file(CONFIGURE OUTPUT "${folder}/fragment_${blocks}.cpp"
        CONTENT "${includes}using namespace tessera;\n${block}\n" @ONLY)
      list(APPEND fragments "${folder}/fragment_${blocks}.cpp")
    endif()
    string(FIND "${rest}" "${fence}" at)
  endwhile()
endforeach()
if(NOT programs EQUAL 1 OR NOT excerpts EQUAL 5 OR NOT fragments)
  message(FATAL_ERROR "${pages} show ${programs} programs and ${excerpts} excerpts in ${blocks} blocks of C++, but one "
    "program and five excerpts are known; this check reads them wrongly")
endif()
set_tests_properties("check: the guide's program 1 runs" PROPERTIES
  PASS_REGULAR_EXPRESSION "^[0-9]+\\.[0-9][0-9] bits a weight")

# None of them runs, so that half of a compiler's time is saved. They say again what the library's aliases are, which
# clang takes for shadowing.
function(tessera_compile_examples name)
  add_test(NAME "compile: examples, ${name}"
    COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-shadow
      "-I${PROJECT_SOURCE_DIR}/include" ${ARGN})
  set_tests_properties("compile: examples, ${name}" PROPERTIES LABELS compile TIMEOUT 600)
endfunction()
tessera_compile_examples("README and pages" ${fragments})

include("${CMAKE_CURRENT_LIST_DIR}/header_examples.cmake")
