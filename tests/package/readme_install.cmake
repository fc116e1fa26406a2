# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The commands of docs/install.md for an install do what they say, with the generator that CMake chooses where none is
# named.
#
#   cmake -D SOURCE=<the repository> -D WORK=<scratch folder> -P readme_install.cmake
cmake_minimum_required(VERSION 3.25...3.31)

file(READ "${SOURCE}/docs/install.md" text)
set(build_folder build/package)
if(NOT text MATCHES "\ncmake (--preset [a-z]+)\ncmake (--install ${build_folder} --prefix) <where>\n")
  message(FATAL_ERROR "docs/install.md shows no install of ${build_folder} after a preset; this check reads it wrongly")
endif()
separate_arguments(configure UNIX_COMMAND "${CMAKE_MATCH_1}")
string(REPLACE "${build_folder}" "\"${WORK}/build\"" install "${CMAKE_MATCH_2}")
separate_arguments(install UNIX_COMMAND "${install}")

file(REMOVE_RECURSE "${WORK}")
unset(ENV{CMAKE_GENERATOR})
# The build folder is elsewhere, so that a user's own is left alone.
execute_process(COMMAND "${CMAKE_COMMAND}" ${configure} -B "${WORK}/build" WORKING_DIRECTORY "${SOURCE}"
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" ${install} "${WORK}/prefix" COMMAND_ERROR_IS_FATAL ANY)
foreach(file include/tessera/neuzip.hpp include/tessera/version.hpp)
  if(NOT EXISTS "${WORK}/prefix/${file}")
    message(FATAL_ERROR "the page's commands have not installed ${file}")
  endif()
endforeach()
file(GLOB_RECURSE configs "${WORK}/prefix/*/tesseraConfig.cmake")
if(NOT configs)
  message(FATAL_ERROR "the page's commands have installed nothing that find_package finds")
endif()
message("the page's commands have installed tessera")
