# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Installs into an empty folder: no file of an earlier state may be left to be found.
#
#   cmake -D BUILD=<build folder> -D STAGE=<install prefix> -P install.cmake
cmake_minimum_required(VERSION 3.24...3.31)

file(REMOVE_RECURSE "${STAGE}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${STAGE}" COMMAND_ERROR_IS_FATAL ANY)
