# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Workflows name the actions that they use by commit, which nobody can move, with the version in a comment.
#
#   cmake -D INCLUDE=<the repository> -P actions.cmake
cmake_minimum_required(VERSION 3.24...3.31)

file(GLOB workflows RELATIVE "${INCLUDE}" "${INCLUDE}/.github/workflows/*.yml" "${INCLUDE}/.github/workflows/*.yaml")
string(REPEAT "[0-9a-f]" 40 commit)
set(problems 0)
set(count 0)
foreach(workflow IN LISTS workflows)
  file(STRINGS "${INCLUDE}/${workflow}" lines REGEX "^[ -]*uses:")
  foreach(line IN LISTS lines)
    string(STRIP "${line}" line)
    math(EXPR count "${count} + 1")
    if(NOT line MATCHES "uses: [^@ ]+@${commit} # v[0-9.]+$")
      message("${workflow}: \"${line}\" must end with @, the 40 digits of a commit, and \" # v\" with its version")
      math(EXPR problems "${problems} + 1")
    endif()
  endforeach()
endforeach()

if(problems GREATER 0)
  message(FATAL_ERROR "${problems} of ${count} actions are not named by commit")
endif()
message("${count} actions are named by commit")
