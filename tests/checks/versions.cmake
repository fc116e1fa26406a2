# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Where the version has to be repeated it is that of include/tessera/version.hpp: in the vcpkg port, and in what the
# README and the examples ask find_package and Conan for.
#
#   cmake -D INCLUDE=<the repository> -P versions.cmake
cmake_minimum_required(VERSION 3.24...3.31)

file(READ "${INCLUDE}/include/tessera/version.hpp" header)
if(NOT header MATCHES "TESSERA_VERSION_STRING \"(([0-9]+\\.[0-9]+)\\.[0-9]+)\"")
  message(FATAL_ERROR "include/tessera/version.hpp names no version of three numbers")
endif()
set(version "${CMAKE_MATCH_1}")
set(series "${CMAKE_MATCH_2}")
set(problems 0)

# The files hold PATTERN, and whatever stands in its parentheses is EXPECTED.
function(expect_everywhere expected pattern)
  foreach(file IN LISTS ARGN)
    file(READ "${INCLUDE}/${file}" text)
    string(REGEX MATCHALL "${pattern}" places "${text}")
    if(NOT places)
      message("${file}: has no \"${pattern}\"; this check reads it wrongly")
      math(EXPR problems "${problems} + 1")
    endif()
    foreach(place IN LISTS places)
      string(REGEX REPLACE "${pattern}" "\\1" found "${place}")
      if(NOT found STREQUAL expected)
        message("${file}: \"${place}\" says ${found}, but the version is ${version}")
        math(EXPR problems "${problems} + 1")
      endif()
    endforeach()
  endforeach()
  set(problems ${problems} PARENT_SCOPE)
endfunction()

file(READ "${INCLUDE}/cmake/ports/tessera/vcpkg.json" port)
string(JSON port_version ERROR_VARIABLE error GET "${port}" version)
if(NOT port_version STREQUAL version)
  message("cmake/ports/tessera/vcpkg.json: says ${port_version}, but the version is ${version} (JSON error: ${error})")
  math(EXPR problems "${problems} + 1")
endif()
expect_everywhere("${series}" "find_package\\(tessera ([0-9.]+)"
  README.md docs/install.md examples/support/find_tessera.cmake tests/package/CMakeLists.txt)
expect_everywhere("${version}" "tessera/([0-9]+[0-9.]*)" README.md docs/install.md)

if(problems GREATER 0)
  message(FATAL_ERROR "${problems} places differ from include/tessera/version.hpp")
endif()
message("every place says ${version}")
