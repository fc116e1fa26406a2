# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Installs from a build without CUDA and, when NVCC names one, from a build with it: the trees must be equal byte for
# byte, hold every header, and name neither the source nor the build folder.
cmake_minimum_required(VERSION 3.24...3.31)

function(run)
  execute_process(COMMAND ${ARGV} OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}\nfailed (${result}):\n${out}")
  endif()
endfunction()

function(install_with cuda name)
  file(COPY ${COMPILERS} DESTINATION "${WORK}/build_${name}/CMakeFiles/${CMAKE_VERSION}")
  run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/build_${name}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}"
    -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_BENCH=OFF -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_CUDA=${cuda}
    -DCMAKE_PLATFORM_INFO_INITIALIZED=1 ${ARGN})
  run("${CMAKE_COMMAND}" --install "${WORK}/build_${name}" --prefix "${WORK}/${name}")
endfunction()

# One line "hash path" for each installed file.
function(fingerprint folder result)
  file(GLOB_RECURSE files RELATIVE "${folder}" "${folder}/*")
  list(SORT files)
  set(lines "")
  foreach(file IN LISTS files)
    file(SHA256 "${folder}/${file}" hash)
    string(APPEND lines "${hash} ${file}\n")
  endforeach()
  set(${result} "${lines}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
install_with(OFF without)
fingerprint("${WORK}/without" without)

file(GLOB_RECURSE headers RELATIVE "${SOURCE}" "${SOURCE}/include/*.hpp" "${SOURCE}/include/*.cuh")
foreach(header IN LISTS headers)
  file(SHA256 "${SOURCE}/${header}" hash)
  string(FIND "${without}" "${hash} ${header}\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${header} is not installed as it stands in the source")
  endif()
endforeach()

file(GLOB_RECURSE scripts "${WORK}/without/share/*")
foreach(script IN LISTS scripts)
  file(READ "${script}" text)
  foreach(folder "${SOURCE}" "${WORK}")
    string(FIND "${text}" "${folder}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${script} names ${folder}, which only this machine has")
    endif()
  endforeach()
endforeach()

if(NVCC)
  install_with(ON with "-DCMAKE_CUDA_COMPILER=${NVCC}" -DCMAKE_CUDA_ARCHITECTURES=90a-real)
  fingerprint("${WORK}/with" with)
  if(NOT with STREQUAL without)
    message(FATAL_ERROR "the installed trees differ\nwithout nvcc:\n${without}\nwith nvcc:\n${with}")
  endif()
endif()
list(LENGTH headers count)
message("${count} headers installed")
