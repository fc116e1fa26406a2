# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Lambdas of headers that capture `this` beside a default say so: [&, this], not [&]. Where they do not, GCC orders what
# it captures by first use, and nvcc writes `this->` before names of members, which changes that order: objects of .cpp
# and .cu files then disagree about the layout of one lambda, and which of their functions the linker keeps decides
# whether a program is right. (One divided by zero so: a plan of losses, in tests compiled without optimisation.)
#
#   cmake -D INCLUDE=<the headers> -D SOURCE=<what includes all of them> -D CLANG_QUERY=<clang-query> -P captures.cmake
cmake_minimum_required(VERSION 3.24...3.31)

# What clang-query says of a source, with notes for lambdas that capture `this` and do not say so.
function(query_captures variable source)
  execute_process(
    COMMAND "${CLANG_QUERY}" -c "match lambdaExpr(hasAnyCapture(lambdaCapture(capturesThis(), isImplicit())))"
      "${source}" -- -std=c++20 "-I${INCLUDE}"
    OUTPUT_VARIABLE said ERROR_VARIABLE complaints RESULT_VARIABLE result)
  string(FIND "${said}${complaints}" "error:" error)
  if(NOT result EQUAL 0 OR NOT error EQUAL -1 OR NOT said MATCHES "[0-9]+ match(es)?\\.")
    message(FATAL_ERROR "${CLANG_QUERY} did not read ${source}:\n${complaints}${said}")
  endif()
  set(${variable} "${said}" PARENT_SCOPE)
endfunction()

# That the query finds what it is for.
get_filename_component(folder "${SOURCE}" DIRECTORY)
set(planted "${folder}/implicit_this.cpp")
file(WRITE "${planted}" "struct s {\n  int m;\n  int f(int a) const {\n    return [&] { return a + m; }();\n  }\n};\n")
query_captures(said "${planted}")
if(NOT said MATCHES "implicit_this.cpp:4:12: note")
  message(FATAL_ERROR "clang-query does not find a lambda that captures this:\n${said}")
endif()

query_captures(said "${SOURCE}")
string(REPLACE "." "\\." pattern "${INCLUDE}")
string(REGEX MATCHALL "${pattern}/[^\n]*:[0-9]+:[0-9]+: note:" places "${said}")
if(places)
  list(JOIN places "\n" places)
  message(FATAL_ERROR "these lambdas capture this, as [&, this] and [=, this] say:\n${places}")
endif()
message("lambdas that capture this beside others say so")
