# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Reads all sources: no line is longer than 120 bytes, and no file than 500 lines; none of examples/papers has 100,
# since these show how short a user's own program is.
#
#   cmake -D INCLUDE=<the repository, or a folder that holds tessera/> -P lines.cmake
cmake_minimum_required(VERSION 3.24...3.31)

set(most_columns 120)
set(most_lines 500)
math(EXPR too_many_columns "${most_columns} + 1")

set(patterns)
foreach(folder include tests bench examples cmake docs tessera)
  foreach(name *.hpp *.cuh *.cpp *.cu *.cmake *.sh *.py *.awk *.in CMakeLists.txt)
    list(APPEND patterns "${INCLUDE}/${folder}/${name}")
  endforeach()
endforeach()
file(GLOB_RECURSE files RELATIVE "${INCLUDE}" ${patterns})
file(GLOB top_files RELATIVE "${INCLUDE}" "${INCLUDE}/CMakeLists.txt" "${INCLUDE}/.ci/run")  # not those in build/
list(APPEND files ${top_files})
set(problems 0)
foreach(file IN LISTS files)
  file(STRINGS "${INCLUDE}/${file}" long_lines LENGTH_MINIMUM ${too_many_columns} ENCODING UTF-8)
  if(long_lines)
    message("${file}: has lines of more than ${most_columns} columns:\n${long_lines}")
    math(EXPR problems "${problems} + 1")
  endif()
  file(READ "${INCLUDE}/${file}" text)
  string(REGEX REPLACE "[^\n]+" "" newlines "${text}")
  string(LENGTH "${newlines}" lines)
  set(most_of_file ${most_lines})
  if(file MATCHES "(^|/)examples/papers/[a-z0-9_]*\\.hpp$")
    set(most_of_file 99)
  endif()
  if(lines GREATER most_of_file)
    message("${file}: has ${lines} lines, more than ${most_of_file}")
    math(EXPR problems "${problems} + 1")
  endif()
endforeach()

if(NOT files)
  message(FATAL_ERROR "no source in ${INCLUDE}")
elseif(problems GREATER 0)
  message(FATAL_ERROR "${problems} files have long lines or many")
endif()
list(LENGTH files count)
message("${count} files keep to ${most_columns} columns and ${most_lines} lines")
