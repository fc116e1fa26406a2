# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# All sources of C++ and CUDA are laid out as .clang-format has it. Other versions of clang-format than 14 differ.
#
#   cmake -D INCLUDE=<the repository> -D CLANG_FORMAT=<clang-format 14> -P format.cmake
cmake_minimum_required(VERSION 3.24...3.31)

set(patterns)
foreach(folder include tests bench examples)
  foreach(name *.hpp *.cuh *.cpp *.cu)
    list(APPEND patterns "${INCLUDE}/${folder}/${name}")
  endforeach()
endforeach()
file(GLOB_RECURSE files ${patterns})
if(NOT files)
  message(FATAL_ERROR "no source in ${INCLUDE}")
endif()
execute_process(COMMAND "${CLANG_FORMAT}" --style=file --dry-run -Werror ${files}
  ERROR_VARIABLE complaints OUTPUT_QUIET RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  string(REGEX MATCHALL "[^\n]*: error: [^\n]*" lines "${complaints}")
  list(JOIN lines "\n" lines)
  message(FATAL_ERROR "${lines}\nrun clang-format 14 -i on these files")
endif()
list(LENGTH files count)
message("${count} files are laid out as .clang-format has it")
