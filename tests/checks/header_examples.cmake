# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Every example of a header compiles. An example is a block of lines that begin with `///     `. The files of examples/
# say, folder by folder, what its reader has at hand; one that none of them names stops the configuration.
#
#   tessera_check_pieces(WHERE SCOPE INCLUDES HEADER GIVEN [HEADER GIVEN]...)
#     pieces of programs, which compile with the header, with what SCOPE includes and with the values that they are
#     GIVEN, as WHERE says: ON_HOST, WITH_NVCC (where there is one), or ON_DEVICE (in a function of the device)
#   tessera_check_example(HEADER GIVEN [BEFORE...])
#     a whole one, which includes what it needs
#   tessera_shows_no_code(HEADER...)
#     formats, layouts, equations and sketches that look like code
#
# HEADER is a path below include/tessera; HEADER:2 is its second block. A line of dots is what a reader puts there; a
# struct at the beginning stands before the function. GIVEN as `template <...> (values)` makes it a template.
set(folder "${CMAKE_CURRENT_BINARY_DIR}/readme_sources")

# The next block of TEXT that is indented as examples are, and what is behind it.
function(tessera_next_example text block rest)
  string(REGEX MATCH "\n *///     [^\n]*(\n *///     [^\n]*|\n *///)*" found "${text}")
  string(FIND "${text}" "${found}" at)
  string(LENGTH "${found}" length)
  math(EXPR at "${at} + ${length}")
  string(SUBSTRING "${text}" ${at} -1 behind)
  string(REGEX REPLACE "\n *///( ? ? ? ? ?)" "\n" found "${found}\n")
  set(${block} "${found}" PARENT_SCOPE)
  set(${rest} "${behind}" PARENT_SCOPE)
endfunction()

# What the block that EXAMPLE names includes, the rest of it, and its header; it counts as seen.
function(tessera_read_example example includes rest header)
  set(number 1)
  set(path "${example}")
  if(example MATCHES "^(.*):([0-9]+)$")
    set(path "${CMAKE_MATCH_1}")
    set(number "${CMAKE_MATCH_2}")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/tessera/${path}")
  set_property(GLOBAL APPEND PROPERTY tessera_examples "${path}:${number}")
  file(READ "${PROJECT_SOURCE_DIR}/include/tessera/${path}" text)
  foreach(index RANGE 1 ${number})
    tessera_next_example("${text}" block text)
  endforeach()
  if(block STREQUAL "\n")
    message(FATAL_ERROR "${path} has no example ${number}; this check reads it wrongly")
  endif()
  tessera_split_includes("${block}" found block)
  set(${includes} "${found}" PARENT_SCOPE)
  set(${rest} "${block}" PARENT_SCOPE)
  set(${header} "${path}" PARENT_SCOPE)
endfunction()

function(tessera_shows_no_code)
  foreach(example IN LISTS ARGN)
    tessera_read_example("${example}" includes block header)
  endforeach()
endfunction()

set(whole_examples "")
function(tessera_check_example example given)
  tessera_read_example("${example}" includes block header)
  string(MAKE_C_IDENTIFIER "${example}" name)
  file(CONFIGURE OUTPUT "${folder}/${name}.cpp"
    CONTENT "${includes}${ARGN}void example(${given}) {${block}}\n" @ONLY)
  set(whole_examples ${whole_examples} "${folder}/${name}.cpp" PARENT_SCOPE)
endfunction()

# Pieces stand in one source for each SCOPE, however many calls name it, each in a namespace of its own: most of the
# time goes into reading headers. They show values and do nothing with them.
function(tessera_check_pieces where scope includes)
  set(functions "")
  while(ARGN)
    list(POP_FRONT ARGN example given)
    tessera_read_example("${example}" more block header)
    string(REGEX REPLACE "\n *(//)? *\\.\\.\\.[^\n]*" "" block "${block}")
    set(before "")
    if(block MATCHES "^\n*((template <[^\n]*\n)?struct .*\n};\n)")
      set(before "${CMAKE_MATCH_1}")
      string(REPLACE "${before}" "" block "${block}")
    endif()
    set(mark "")
    if(given MATCHES "^ *(template <[^\n]*>) *\\((.*)\\)$")
      set(mark "${CMAKE_MATCH_1} ")
      set(given "${CMAKE_MATCH_2}")
    endif()
    if(where STREQUAL "ON_DEVICE")
      string(APPEND mark "__device__ ")
    endif()
    string(MAKE_C_IDENTIFIER "${example}" name)
    string(APPEND includes "\n#include <tessera/${header}>\n${more}")
    string(APPEND functions
      "\nnamespace pieces::in_${name} {\n${before}${mark}void example(${given}) {${block}}\n}\n")
  endwhile()
  if(where STREQUAL "ON_HOST")
    set_property(GLOBAL APPEND PROPERTY tessera_host_scopes "${scope}")
  elseif(TESSERA_HAVE_CUDA)
    set_property(GLOBAL APPEND PROPERTY tessera_cuda_scopes "${scope}")
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY tessera_includes_of_${scope} "${includes}\n")
  set_property(GLOBAL APPEND_STRING PROPERTY tessera_functions_of_${scope} "${functions}")
endfunction()

# Writes the source of a scope.
function(tessera_write_pieces source scope)
  get_property(includes GLOBAL PROPERTY tessera_includes_of_${scope})
  get_property(functions GLOBAL PROPERTY tessera_functions_of_${scope})
  file(CONFIGURE OUTPUT "${source}" CONTENT "${includes}\nusing namespace tessera;\n${functions}" @ONLY)
endfunction()

# Compiles what all calls above have asked for.
function(tessera_compile_pieces)
  get_property(scopes GLOBAL PROPERTY tessera_host_scopes)
  list(REMOVE_DUPLICATES scopes)
  foreach(scope IN LISTS scopes)
    set(source "${folder}/pieces_${scope}.cpp")
    tessera_write_pieces("${source}" "${scope}")
    tessera_compile_examples("pieces of ${scope}" -Wno-unused -Wno-unused-result "-I${PROJECT_SOURCE_DIR}/tests"
      "${source}")
  endforeach()
  get_property(scopes GLOBAL PROPERTY tessera_cuda_scopes)
  list(REMOVE_DUPLICATES scopes)
  foreach(scope IN LISTS scopes)
    set(source "${folder}/pieces_${scope}.cu")
    tessera_write_pieces("${source}" "${scope}")
    add_library(tessera_pieces_${scope} OBJECT "${source}")
    target_include_directories(tessera_pieces_${scope} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    target_link_libraries(tessera_pieces_${scope} PRIVATE tessera::cuda)
    tessera_use_nccl_header(tessera_pieces_${scope})
    target_compile_options(tessera_pieces_${scope} PRIVATE
      "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-diag-suppress=177,550>")
    list(GET CMAKE_CUDA_ARCHITECTURES -1 one_architecture)
    set_target_properties(tessera_pieces_${scope} PROPERTIES
      CUDA_PTX_COMPILATION ON CUDA_ARCHITECTURES "${one_architecture}")
  endforeach()
endfunction()

# What examples of many folders are given.
set(given_executor "Executor const& exec")
set(given_memory "${given_executor}, tessera::buffer<std::byte>& memory")
set(given_heads "tessera::head_view<tessera::bfloat16 const>")
set(given_matrix "tessera::matrix_view<tessera::bfloat16 const>")
set(given_result "tessera::matrix_view<tessera::bfloat16>")
set(given_tokens "tessera::view<tessera::bfloat16 const, 3>")
set(pieces "#include \"checks/pieces.hpp\"")

file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/examples/*.cmake")
foreach(file IN LISTS files)
  include("${file}")
endforeach()
tessera_compile_pieces()
tessera_compile_examples("whole ones of headers" ${whole_examples})

# A block is an example if one of its lines ends as lines of C++ do.
get_property(seen GLOBAL PROPERTY tessera_examples)
set(missing "")
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include/tessera"
  "${PROJECT_SOURCE_DIR}/include/tessera/*.hpp" "${PROJECT_SOURCE_DIR}/include/tessera/*.cuh")
foreach(header IN LISTS headers)
  file(READ "${PROJECT_SOURCE_DIR}/include/tessera/${header}" text)
  set(number 0)
  while(text MATCHES "\n *///     ")
    tessera_next_example("${text}" block text)
    math(EXPR number "${number} + 1")
    if(block MATCHES "[;{}] *(//[^\n]*)?\n" AND NOT "${header}:${number}" IN_LIST seen)
      string(APPEND missing "\n  ${header}:${number}")
    endif()
  endwhile()
endforeach()
if(missing)
  message(FATAL_ERROR "These examples of headers are compiled by no file of tests/checks/examples:${missing}")
endif()
