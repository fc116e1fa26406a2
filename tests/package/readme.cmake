# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The CMake project with CUDA of docs/install.md configures and builds as it stands there, and tessera's package warns
# of architectures that it has no programs for, or none that use wgmma.
#
#   cmake -D README=<docs/install.md> -D STAGE=<install prefix> -D WORK=<scratch folder> -D GENERATOR=<generator>
#         -D CXX=<compiler> -D NVCC=<compiler> -P readme.cmake
cmake_minimum_required(VERSION 3.24...3.31)

file(READ "${README}" text)
if(NOT text MATCHES "\n```cmake\n(cmake_minimum_required[^`]*CMAKE_CUDA_ARCHITECTURES[^`]*)\n```\n")
  message(FATAL_ERROR "${README} shows no CMake project with CUDA; this check reads it wrongly")
endif()
set(project "${CMAKE_MATCH_1}\n")
file(REMOVE_RECURSE "${WORK}")

# A project with what stands on the page but ARCHITECTURES; sets `said` to what configuring says. All share a build
# folder, so that CMake looks at the compilers once.
function(configure architectures)
  string(REPLACE "CMAKE_CUDA_ARCHITECTURES 90a)" "CMAKE_CUDA_ARCHITECTURES ${architectures})" changed "${project}")
  file(WRITE "${WORK}/CMakeLists.txt" "${changed}")
  file(COPY_FILE "${CMAKE_CURRENT_LIST_DIR}/readme.cu" "${WORK}/neuzip.cu")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${WORK}" -B "${WORK}/build" -G "${GENERATOR}"
      "-DCMAKE_PREFIX_PATH=${STAGE}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CUDA_COMPILER=${NVCC}" ${ARGN}
    OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "the page's project does not configure for ${architectures}:\n${out}")
  endif()
  string(REGEX REPLACE "[ \n]+" " " out "${out}")
  set(said "${out}" PARENT_SCOPE)
endfunction()

# The last project's configuring said WORDS, or no warning where they are empty.
function(expect words)
  if((words STREQUAL "" AND said MATCHES "[Ww]arning") OR NOT said MATCHES "${words}")
    message(FATAL_ERROR "expected \"${words}\", but CMake said:\n${said}")
  endif()
endfunction()

configure(90a)
expect("")
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" OUTPUT_VARIABLE out ERROR_VARIABLE out
  RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR out MATCHES "[Ww]arning")
  message(FATAL_ERROR "the page's project does not build without a word:\n${out}")
endif()

configure("75 80")
expect("is \"75;80\", but sources that use tessera::cuda do not compile for 75: 80 is the least")
configure(90)
expect("is \"90\": for 90 without the \"a\" there is no wgmma")
# The pass for the device reads all of a source.  That for the host, which takes twice as long, has read it above.
configure(90-real -DTESSERA_ACCEPT_SM_90=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
expect("")
file(READ "${WORK}/build/compile_commands.json" commands)
string(JSON count LENGTH "${commands}")
string(JSON folder GET "${commands}" 0 directory)
string(JSON command GET "${commands}" 0 command)
if(NOT count EQUAL 1 OR NOT command MATCHES " -DTESSERA_ACCEPT_SM_90 .* -c ")
  message(FATAL_ERROR "a project that means sm_90 does not say so to nvcc:\n${commands}")
endif()
string(REPLACE " -c " " -ptx " command "${command}")
separate_arguments(command NATIVE_COMMAND "${command}")
execute_process(COMMAND ${command} WORKING_DIRECTORY "${folder}" OUTPUT_VARIABLE out ERROR_VARIABLE out
  RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR out MATCHES "[Ww]arning")
  message(FATAL_ERROR "a project that means sm_90 does not compile without a word:\n${out}")
endif()
