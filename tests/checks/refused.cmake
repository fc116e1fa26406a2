# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A compiler refuses SOURCE with TESSERA_FAIL, in the words of its line "// expect: regex".
#
#   cmake -D SOURCE=<*_fail.cpp> -D "COMPILE=<compiler;arguments>" -D END=<a source with an error> -P refused.cmake
cmake_minimum_required(VERSION 3.24...3.31)

file(READ "${SOURCE}" text LIMIT 2000)
string(REGEX MATCH "// expect: ([^\n]+)\n" line "${text}")
set(expected "${CMAKE_MATCH_1}")

# Ends this check where the compiler, with these ARGUMENTS, says what is expected; else `out` is what it says.
macro(try)
  execute_process(COMMAND ${COMPILE} -DTESSERA_FAIL ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE out
    RESULT_VARIABLE result)
  if(NOT result EQUAL 0 AND out MATCHES "${expected}")
    message("${out}")
    return()
  endif()
endmacro()

# Nine tenths of the time would go into what a compiler does once it has read a source, which is to instantiate what the
# headers use. Where its first error has the words, it ends there. Where a note below that error has them, it ends with
# the next error: END has one. All errors are seen where neither has the words.
try("${SOURCE}" -Wfatal-errors)
try(-include "${SOURCE}" "${END}" -fmax-errors=1)
try("${SOURCE}")
message(FATAL_ERROR "expected \"${expected}\", got (${result}):\n${out}")
