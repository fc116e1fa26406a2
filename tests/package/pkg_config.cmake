# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Builds and runs a program with the flags that pkg-config gives for the installed tree, after that has moved.
#
#   cmake -D STAGE=<install prefix> -D WORK=<scratch folder> -D CXX=<compiler> -D VERSION=<version>
#         -D PKG_CONFIG=<program, may be empty> -P pkg_config.cmake
cmake_minimum_required(VERSION 3.24...3.31)

if(NOT PKG_CONFIG)
  message("[tessera:skipped] there is no pkg-config")
  return()
endif()
file(REMOVE_RECURSE "${WORK}")
file(COPY "${STAGE}/" DESTINATION "${WORK}/moved")
# A tessera that the system has must not answer.
set(ENV{PKG_CONFIG_LIBDIR} "${WORK}/moved/share/pkgconfig")
unset(ENV{PKG_CONFIG_PATH})
execute_process(COMMAND "${PKG_CONFIG}" --modversion tessera
  OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs tessera
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT version STREQUAL VERSION)
  message(FATAL_ERROR "pkg-config says version \"${version}\", not \"${VERSION}\"")
endif()
string(FIND "${flags}" "-I${WORK}/moved/" at)
if(at EQUAL -1)
  message(FATAL_ERROR "the flags do not name where the tree is now: ${flags}")
endif()
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND "${CXX}" -std=c++20 "${CMAKE_CURRENT_LIST_DIR}/main.cpp" ${flags} -o "${WORK}/program"
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${WORK}/program" COMMAND_ERROR_IS_FATAL ANY)
