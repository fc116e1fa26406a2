# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# For an example that is one main.cpp for the CPU and reads tests/data: its program and its test, which gets the words
# after the name.
find_package(nlohmann_json 3.7 REQUIRED)
set(EXAMPLE_DATA "${CMAKE_CURRENT_LIST_DIR}/../../tests/data")

function(add_example name)
  add_executable(example_${name} main.cpp)
  target_link_libraries(example_${name} PRIVATE tessera::tessera nlohmann_json::nlohmann_json)
  target_compile_definitions(example_${name} PRIVATE EXAMPLE_DATA="${EXAMPLE_DATA}")
  if(TESSERA_BUILD_TESTS)
    add_test(NAME "example: ${name}" COMMAND example_${name} ${ARGN})
    set_tests_properties("example: ${name}" PROPERTIES LABELS host TIMEOUT 600)
  endif()
endfunction()
