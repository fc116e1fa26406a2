# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Every host test that says std::thread or "threads = " more than one has the tag [threads], by which ThreadSanitizer's
# build (the preset sanitize-threads) finds it. Where a function beside the tests says so, one of its file's tests has
# the tag.
#
#   cmake -D INCLUDE=<the repository> -P threads.cmake
cmake_minimum_required(VERSION 3.24...3.31)

set(starts_threads "std::j?thread|threads = ([2-9]|[a-z])")
file(GLOB_RECURSE tests RELATIVE "${INCLUDE}/tests" "${INCLUDE}/tests/*_test.cpp")
set(problems 0)
set(count 0)
foreach(test IN LISTS tests)
  file(READ "${INCLUDE}/tests/${test}" text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  if(NOT text MATCHES "${starts_threads}")
    continue()
  endif()
  math(EXPR count "${count} + 1")
  # A list whose elements end where functions do. Brackets would join its elements.
  string(REPLACE ";" "" text "${text}")
  string(REPLACE "[" "<" text "${text}")
  string(REPLACE "]" ">" text "${text}")
  string(REPLACE "\n}\n" ";" functions "${text}")
  foreach(function IN LISTS functions)
    if(NOT function MATCHES "${starts_threads}" OR function MATCHES "<threads>")
      continue()
    endif()
    if(function MATCHES "TEST_CASE\\([^\"]*\"([^\"]*)\"")
      message("${test}: \"${CMAKE_MATCH_1}\" starts threads but has no tag [threads]")
      math(EXPR problems "${problems} + 1")
    elseif(NOT text MATCHES "<threads>")
      message("${test}: starts threads but none of its tests has the tag [threads]")
      math(EXPR problems "${problems} + 1")
    endif()
  endforeach()
endforeach()

if(NOT tests)
  message(FATAL_ERROR "no test in ${INCLUDE}/tests")
elseif(problems GREATER 0)
  message(FATAL_ERROR "${problems} tests start threads without a tag")
endif()
message("tests of ${count} files start threads, and have the tag [threads]")
