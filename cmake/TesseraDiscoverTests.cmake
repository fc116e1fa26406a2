# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Registers each Catch2 test case with ctest.  Like catch_discover_tests, but the same for Catch2 2 and 3, and safe for
# test names that are sentences: "[0, 1) holds" would end the list that Catch2's own script splits.
#
#   tessera_discover_tests(target PREFIX "host:" SPECIFICATION "~[long]" PROPERTIES LABELS host)
#
# A specification in Catch2's language chooses tests; all are registered without one.  With FILES above 0 the tests of
# so many source files run in one process, as one test of ctest: what runs under sanitizers takes a tenth of a second
# to start.
# Run as a script (cmake -P) by the build, it writes the ctest file.
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  cmake_minimum_required(VERSION 3.24...3.31)
  if(FILES)
    set(list_options --filenames-as-tags --list-tags)
  elseif(CATCH_MAJOR GREATER_EQUAL 3)
    set(list_options --list-tests --verbosity quiet)
  else()
    set(list_options --list-test-names-only)
  endif()
  execute_process(COMMAND "${PROGRAM}" ${list_options} ${SPECIFICATION}
    OUTPUT_VARIABLE names ERROR_VARIABLE problems RESULT_VARIABLE result)
  # Catch2 2 exits with the number of tests, so only the text tells.
  if(NOT result MATCHES "^[0-9]+$" OR NOT problems STREQUAL "")
    message(FATAL_ERROR "listing the tests of ${PROGRAM} failed (${result}):\n${problems}${names}")
  endif()
  if(FILES)
    set(script "")
    string(REGEX MATCHALL "\\[#[^]]+\\]" files "${names}")
    list(SORT files ORDER DESCENDING)  # those of several ranks, which take longest, begin
    list(LENGTH files count)
    while(files)
      set(chosen "")
      set(name "${PREFIX}")
      foreach(which RANGE 1 ${FILES})
        if(files)
          list(POP_FRONT files file)
          list(APPEND chosen "${file}${SPECIFICATION}")
          string(REGEX REPLACE "[][#]" "" stem "${file}")
          string(APPEND name " ${stem}")
        endif()
      endforeach()
      list(JOIN chosen "," chosen)
      string(APPEND script "add_test([==[${name}]==] [==[${PROGRAM}]==] --filenames-as-tags [==[${chosen}]==])\n"
        "set_tests_properties([==[${name}]==] PROPERTIES ${PROPERTIES})\n")
    endwhile()
    file(WRITE "${OUTPUT}" "${script}")
    message("tests of ${count} files in ${PROGRAM}")
    return()
  endif()
  string(ASCII 1 open)
  string(ASCII 2 close)
  string(ASCII 3 semicolon)
  string(REPLACE "[" "${open}" names "${names}")
  string(REPLACE "]" "${close}" names "${names}")
  string(REPLACE ";" "${semicolon}" names "${names}")
  string(REPLACE "\\" "\\\\" names "${names}")
  string(REPLACE "\n" ";" names "${names}")
  set(script "")
  set(count 0)
  foreach(name IN LISTS names)
    string(STRIP "${name}" name)
    if(name STREQUAL "")
      continue()
    endif()
    string(REPLACE "${open}" "[" name "${name}")
    string(REPLACE "${close}" "]" name "${name}")
    string(REPLACE "${semicolon}" ";" name "${name}")
    # What Catch2 would read as its pattern language.
    string(REPLACE "\\" "\\\\" pattern "${name}")
    foreach(special "," "[" "]" "*" "\"" "~")
      string(REPLACE "${special}" "\\${special}" pattern "${pattern}")
    endforeach()
    string(APPEND script "add_test([==[${PREFIX} ${name}]==] [==[${PROGRAM}]==] [==[${pattern}]==])\n"
      "set_tests_properties([==[${PREFIX} ${name}]==] PROPERTIES ${PROPERTIES})\n")
    math(EXPR count "${count} + 1")
  endforeach()
  file(WRITE "${OUTPUT}" "${script}")
  message("${count} tests in ${PROGRAM}")
  return()
endif()

set(TESSERA_DISCOVER_TESTS_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")
function(tessera_discover_tests target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PREFIX;SPECIFICATION;FILES" "PROPERTIES")
  set(properties "")
  foreach(word IN LISTS arg_PROPERTIES)
    string(APPEND properties " [==[${word}]==]")
  endforeach()
  string(REGEX MATCH "^[0-9]+" major "${Catch2_VERSION}")
  set(listing "${CMAKE_CURRENT_BINARY_DIR}/${target}_tests.cmake")
  add_custom_command(TARGET ${target} POST_BUILD
    BYPRODUCTS "${listing}"
    COMMAND "${CMAKE_COMMAND}" -D "PROGRAM=$<TARGET_FILE:${target}>" -D "CATCH_MAJOR=${major}"
      -D "PREFIX=${arg_PREFIX}" -D "FILES=${arg_FILES}" -D "SPECIFICATION=${arg_SPECIFICATION}"
      -D "PROPERTIES=${properties}"
      -D "OUTPUT=${listing}" -P "${TESSERA_DISCOVER_TESTS_SCRIPT}"
    VERBATIM)
  set(include_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  file(CONFIGURE OUTPUT "${include_file}" @ONLY CONTENT [[
if(EXISTS "@listing@")
  include("@listing@")
else()
  add_test(@target@_is_not_built @target@_is_not_built)
endif()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include_file}")
endfunction()
