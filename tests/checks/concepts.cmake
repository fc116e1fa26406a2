# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Concepts are true: each one in concepts/ constrains something in a header outside of concepts/ and testing/, and no
# template parameter has a concept's name, which would say that it is constrained where it is not.
#
# A use is a constrained parameter (template <Reducer R>), a requires-clause, a part of another concept or a condition.
# A static_assert that a type of the library is a model is no use.
#
#   cmake -D INCLUDE=<folder that holds tessera/> -P concepts.cmake
cmake_minimum_required(VERSION 3.24...3.31)

set(problems 0)
macro(complain text)
  message("${text}")
  math(EXPR problems "${problems} + 1")
endmacro()

# The text of a header without comments, directives, static_asserts and strings, in one line.
function(code_of file result)
  file(READ "${INCLUDE}/tessera/${file}" text)
  string(REPLACE ";" "\\;" text "${text}")
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "\n#[^\n]*" "" text "${text}")
  string(REGEX REPLACE "static_assert\\([^;\\]*" "" text "${text}")
  string(REGEX REPLACE "\"[^\"\n]*\"" "" text "${text}")
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# Whether NAME is a constraint somewhere in the code, which ends with the heads of its templates.
function(constrains name code heads result)
  set(${result} FALSE PARENT_SCOPE)
  if(heads MATCHES "[<,] ?${name}(<[^<>]*>)?( |\\.\\.\\. ?)[A-Z][A-Za-z]* ?[,>=]"
      OR code MATCHES "(requires|&&|\\|\\||[=(!{])[ (!]*${name}<")
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()

# Complains where HEADS have a parameter with a concept's name.
macro(check_parameters)
  foreach(name IN LISTS concepts)
    if(heads MATCHES "[A-Za-z0-9_>.] (\\.\\.\\. ?)?${name} ?[,>=]")
      complain("${file}: a template parameter is named ${name}, which is a concept")
    endif()
  endforeach()
endmacro()

file(GLOB_RECURSE files RELATIVE "${INCLUDE}/tessera" "${INCLUDE}/tessera/*.hpp" "${INCLUDE}/tessera/*.cuh")
set(concepts "")
set(unused "")
foreach(file IN LISTS files)
  code_of("${file}" code)
  string(REGEX MATCHALL "concept [A-Z][A-Za-z]* =" found "${code}")
  foreach(line IN LISTS found)
    string(REGEX REPLACE "concept ([A-Za-z]*) =" "\\1" name "${line}")
    list(APPEND concepts "${name}")
    if(file MATCHES "^concepts/")
      list(APPEND unused "${name}")
    endif()
  endforeach()
endforeach()
list(LENGTH unused count)

foreach(file IN LISTS files)
  code_of("${file}" code)
  string(REGEX REPLACE "concept [A-Z][A-Za-z]* =" "{" code "${code}")
  string(REGEX MATCHALL "template <[^(){};\\]*" heads "${code}")
  list(JOIN heads "  " heads)
  check_parameters()
  if(NOT file MATCHES "^(concepts|testing)/")
    foreach(name IN LISTS unused)
      constrains("${name}" "${code}" "${heads}" is_used)
      if(is_used)
        list(REMOVE_ITEM unused "${name}")
      endif()
    endforeach()
  endif()
endforeach()

list(LENGTH unused unused_count)
foreach(name IN LISTS unused)
  complain("${name} constrains nothing outside of concepts/ and testing/")
endforeach()
if(count EQUAL 0)
  message(FATAL_ERROR "no concept in ${INCLUDE}/tessera/concepts")
elseif(problems GREATER 0)
  message(FATAL_ERROR "${problems} problems with ${count} concepts; house.concepts_unused ${unused_count}")
endif()
message("${count} concepts, and no parameter has the name of one; house.concepts_unused ${unused_count}")
