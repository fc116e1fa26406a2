# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A shared library exports the functions that headers of C declare, and nothing else.
#
#   cmake -D NM=<nm> -D LIBRARY=<*.so> -D HEADERS=<folder of *.h> -P c_symbols.cmake
cmake_minimum_required(VERSION 3.24...3.31)

set(declared "")
file(GLOB headers "${HEADERS}/*.h")
foreach(header IN LISTS headers)
  file(READ "${header}" text)
  string(REGEX MATCHALL "TESSERA_C_API [^(;]*" declarations "${text}")
  foreach(declaration IN LISTS declarations)
    string(REGEX REPLACE "^.*[ *\n]([a-z_0-9]+)$" "\\1" name "${declaration}")
    if(name MATCHES "^tessera_")
      list(APPEND declared "${name}")
    endif()
  endforeach()
endforeach()
if(NOT declared)
  message(FATAL_ERROR "no function of ${HEADERS}/*.h is declared TESSERA_C_API")
endif()

execute_process(COMMAND "${NM}" -D --defined-only --format=posix "${LIBRARY}"
  OUTPUT_VARIABLE table COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[^ \n]+" exported "${table}")
list(TRANSFORM exported REPLACE "\n" "")
list(SORT declared)
list(SORT exported)
if(NOT declared STREQUAL exported)
  message(FATAL_ERROR "the headers declare\n  ${declared}\nbut the library exports\n  ${exported}")
endif()
list(LENGTH declared count)
message("${count} functions are exported")
