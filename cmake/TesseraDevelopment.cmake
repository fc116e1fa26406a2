# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What only this repository's own build uses; a project that includes tessera never reads this file.
include_guard()

function(tessera_use_ccache)
  find_program(TESSERA_CCACHE ccache)
  mark_as_advanced(TESSERA_CCACHE)
  if(TESSERA_CCACHE)
    # It takes no precompiled header without being told that __TIME__ and macros defined before it do not matter.
    set(launcher "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${TESSERA_CCACHE}")
    foreach(language CXX CUDA)
      if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
        set(CMAKE_${language}_COMPILER_LAUNCHER "${launcher}" PARENT_SCOPE)
      endif()
    endforeach()
  endif()
endfunction()

# Sets CMAKE_CUDA_COMPILER when an nvcc of at least MINIMUM is found, on PATH or in the usual place.  Not
# check_language(): CMake before 3.25.2 reports nvcc unusable when CMAKE_CXX_STANDARD is 20 and required.
macro(tessera_find_nvcc minimum)
  if(DEFINED ENV{CUDACXX} AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}" CACHE FILEPATH "CUDA compiler")
  endif()
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(CMAKE_CUDA_COMPILER)
    execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE tessera_nvcc_version ERROR_QUIET)
    if(tessera_nvcc_version MATCHES "release ([0-9.]+)" AND CMAKE_MATCH_1 VERSION_LESS "${minimum}")
      message(STATUS "nvcc ${CMAKE_MATCH_1} is older than ${minimum}: host only")
      unset(CMAKE_CUDA_COMPILER CACHE)
      unset(CMAKE_CUDA_COMPILER)
    endif()
  endif()
endmacro()

# Sets VARIABLE to the compute capabilities of the GPUs at hand, as in 9.0; to nothing where there is none.
macro(tessera_find_gpus variable)
  set(${variable} "")
  find_program(TESSERA_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(TESSERA_NVIDIA_SMI)
  if(TESSERA_NVIDIA_SMI)
    execute_process(COMMAND "${TESSERA_NVIDIA_SMI}" --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE tessera_smi_output RESULT_VARIABLE tessera_smi_failed ERROR_QUIET)
    if(NOT tessera_smi_failed)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]" ${variable} "${tessera_smi_output}")
    endif()
  endif()
endmacro()

# sm_80 and sm_90a, and the GPU at hand when it is neither.  Not "native": that is an error without a GPU, and names
# a Hopper without the 'a' that wgmma needs.
macro(tessera_default_cuda_architectures)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(tessera_architectures 80-real 90a-real)
    tessera_find_gpus(tessera_capabilities)
    foreach(tessera_capability IN LISTS tessera_capabilities)
      string(REPLACE "." "" tessera_capability "${tessera_capability}")
      if(tessera_capability GREATER_EQUAL 90)
        string(APPEND tessera_capability "a")
      endif()
      list(APPEND tessera_architectures "${tessera_capability}-real")
    endforeach()
    list(REMOVE_DUPLICATES tessera_architectures)
    set(CMAKE_CUDA_ARCHITECTURES "${tessera_architectures}" CACHE STRING "CUDA architectures")
  endif()
endmacro()

# Most of the time for CUDA sources goes into optimising device code.  A quarter of it is left without, which is enough
# where no GPU runs the code.  Where one does, code is optimised as usual: with CUDA 13.0's --Ofast-compile=mid tests of
# pages met illegal addresses on an H200, whose optimised code does not.  What tessera_assemble_tests assembles is
# shorter by mid, so that ptxas takes 10 s for 26.  The option came after 12.8.
macro(tessera_compile_device_code_quickly)
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --help OUTPUT_VARIABLE tessera_nvcc_help ERROR_QUIET)
  if(tessera_nvcc_help MATCHES "--Ofast-compile")
    tessera_find_gpus(tessera_capabilities)
    if(NOT tessera_capabilities)
      set(tessera_quickly "$<IF:$<BOOL:$<TARGET_PROPERTY:TESSERA_IS_ASSEMBLED>>,mid,max>")
      add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=${tessera_quickly}>")
    endif()
  endif()
endmacro()

# g++ takes an eighth less time where it collects garbage only from 600 MB on, which makes it larger by half: done where
# each core has 2 GB. From 1500 MB on it takes another twelfth less for the largest tests: where each core has 6 GB.
macro(tessera_let_gcc_use_memory)
  cmake_host_system_information(RESULT tessera_megabytes QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT tessera_cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR tessera_megabytes_per_core "${tessera_megabytes} / ${tessera_cores}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND tessera_megabytes_per_core GREATER 2000)
    set(tessera_heap 600000)
    if(tessera_megabytes_per_core GREATER 6000)
      set(tessera_heap 1500000)
    endif()
    string(APPEND CMAKE_CXX_FLAGS " --param=ggc-min-heapsize=${tessera_heap}")
    if(CMAKE_CUDA_COMPILER AND NOT CMAKE_CUDA_HOST_COMPILER)
      string(APPEND CMAKE_CUDA_FLAGS " -Xcompiler=--param=ggc-min-heapsize=${tessera_heap}")
    endif()
  endif()
endmacro()

# Debug builds are linked by LLD where it is at hand: the tests with sanitizers, which have 250 MB, in 1.2 s of a
# processor's time for 7, while nothing else is left to do. It, too, keeps the first of several definitions of an inline
# function (tests/support/inner_functions.cpp).
macro(tessera_link_quickly)
  find_program(TESSERA_LLD ld.lld)
  mark_as_advanced(TESSERA_LLD)
  if(TESSERA_LLD AND CMAKE_BUILD_TYPE STREQUAL "Debug" AND CMAKE_SYSTEM_NAME STREQUAL "Linux"
      AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang" AND NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
    string(APPEND CMAKE_EXE_LINKER_FLAGS " -fuse-ld=lld")
  endif()
endmacro()

# Sets VARIABLE to the architectures that programs are compiled for: the last one where no GPU runs them and device code
# may be slow, else all. That programs compile for others is shown by the presets cuda-80, cuda-89 and cuda-all.
macro(tessera_architectures_of_programs variable)
  set(${variable} "${CMAKE_CUDA_ARCHITECTURES}")
  tessera_cannot_run_cuda(tessera_is_without_gpu)
  if(tessera_is_without_gpu)
    list(GET CMAKE_CUDA_ARCHITECTURES -1 ${variable})
  endif()
endmacro()

# Sets VARIABLE to the same, but to PTX alone where that leaves architectures out: ptxas takes a third of the time.
macro(tessera_architectures_or_ptx variable)
  tessera_architectures_of_programs(${variable})
  if(NOT "${${variable}}" STREQUAL "${CMAKE_CUDA_ARCHITECTURES}")
    string(REGEX REPLACE "^([0-9]+[af]?).*" "\\1-virtual" ${variable} "${${variable}}")
  endif()
endmacro()

# Sets VARIABLE to whether CUDA programs can only be compiled here: where no GPU runs them and device code may be slow.
function(tessera_cannot_run_cuda variable)
  set(${variable} OFF PARENT_SCOPE)
  if(TESSERA_HAVE_CUDA AND TESSERA_QUICK_DEVICE_CODE AND UNIX)
    tessera_find_gpus(tessera_capabilities)
    if(NOT tessera_capabilities)
      set(${variable} ON PARENT_SCOPE)
    endif()
  endif()
endfunction()

# CUDA sources of the object library TARGET are compiled to PTX by nvcc's compiler for the device, which reads their
# host parts, too. The compiler for the host, which takes a third of the time, does not see them: it sees every header
# where all are linked, and the tests of the aliases and of words. TEST says so when tests run.
function(tessera_compile_without_linking target test)
  set_target_properties(${target} PROPERTIES CUDA_PTX_COMPILATION ON)
  if(TESSERA_BUILD_TESTS)
    add_test(NAME "${test}" COMMAND "${CMAKE_COMMAND}" -E echo "[tessera:skipped] ${test}")
    set_tests_properties("${test}" PROPERTIES SKIP_REGULAR_EXPRESSION "\\[tessera:skipped\\]")
  endif()
endfunction()

# Moves from the list FROM to the list TO the CUDA tests of which each needs a GPU.
function(tessera_move_tests_on_gpus to from)
  set(moved ${${to}})
  set(kept "")
  foreach(source IN LISTS ${from})
    file(READ "${source}" text)
    string(REGEX MATCHALL "\nTEST_CASE|\nTEMPLATE_TEST_CASE" tests "${text}")
    string(REGEX MATCHALL "\n  TESSERA_NEEDS_CUDA" needs "${text}")
    list(LENGTH tests count)
    list(LENGTH needs count_on_gpus)
    if(count EQUAL count_on_gpus)
      list(APPEND moved "${source}")
    else()
      list(APPEND kept "${source}")
    endif()
  endforeach()
  set(${to} "${moved}" PARENT_SCOPE)
  set(${from} "${kept}" PARENT_SCOPE)
endfunction()

# Compiles CUDA sources to PTX, and assembles this for the same architecture: whether each instruction is one. What
# ptxas says of speed is left out, since nothing is optimised here, and the host's part, which takes a third of all.
function(tessera_assemble_tests target)
  add_library(${target} OBJECT ${ARGN})
  target_link_libraries(${target} PRIVATE tessera::cuda tessera_test_support)
  tessera_architectures_or_ptx(architectures)
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${architectures}" TESSERA_IS_ASSEMBLED ON)
  set(not_linked "cuda: ASSEMBLED BUT NOT LINKED, tests of words on GPUs: there is no GPU")
  tessera_compile_without_linking(${target} "${not_linked}")
  set_tests_properties("${not_linked}" PROPERTIES LABELS cuda)
  get_filename_component(folder "${CMAKE_CUDA_COMPILER}" DIRECTORY)
  find_program(TESSERA_PTXAS ptxas HINTS "${folder}" REQUIRED)
  mark_as_advanced(TESSERA_PTXAS)
  string(REGEX MATCH "^[0-9]+[af]?" architecture "${architectures}")
  set(assembled "${CMAKE_CURRENT_BINARY_DIR}/${target}.cubin")
  add_custom_command(OUTPUT "${assembled}"
    COMMAND sh -c "\"$@\" >\"$0\" 2>&1 || (cat \"$0\" && false)" "${assembled}.log"
      "${TESSERA_PTXAS}" -O0 -arch=sm_${architecture} -o "${assembled}" "$<TARGET_OBJECTS:${target}>"
    DEPENDS ${target} "$<TARGET_OBJECTS:${target}>" COMMENT "Assembling ${target}" VERBATIM COMMAND_EXPAND_LISTS)
  add_custom_target(${target}_assembled ALL DEPENDS "${assembled}")
endfunction()

# What the calling directory compiles is for these.
macro(tessera_compile_for_one_architecture)
  tessera_architectures_or_ptx(tessera_architectures)
  set(CMAKE_CUDA_ARCHITECTURES "${tessera_architectures}")
endmacro()

# Warnings are errors in everything below the calling directory, when this is the top-level project.
macro(tessera_strict_warnings)
  if(tessera_IS_TOP_LEVEL)
    set(tessera_warnings -Wall -Wextra -Wshadow -Werror)
    string(REPLACE ";" "," tessera_forwarded_warnings "${tessera_warnings}")
    add_compile_options(
      "$<$<COMPILE_LANGUAGE:CXX>:${tessera_warnings}>"
      "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Werror=all-warnings;-Xcompiler=${tessera_forwarded_warnings}>")
  endif()
endmacro()

# The target tessera_nccl, for our own tests of comm/nccl.cuh, where there are nccl.h and the library, which are no part
# of the toolkit.  TESSERA_NCCL_INCLUDE_DIR and TESSERA_NCCL_LIBRARY say where, if it is nowhere usual.
function(tessera_find_nccl)
  if(TESSERA_HAVE_CUDA)
    find_path(TESSERA_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(TESSERA_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS "${CUDAToolkit_LIBRARY_DIR}")
    mark_as_advanced(TESSERA_NCCL_INCLUDE_DIR TESSERA_NCCL_LIBRARY)
    set(version 0.0)
    if(TESSERA_NCCL_INCLUDE_DIR)
      file(STRINGS "${TESSERA_NCCL_INCLUDE_DIR}/nccl.h" lines REGEX "^#define NCCL_(MAJOR|MINOR) ")
      string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" version "${lines}")
    endif()
    if(TESSERA_NCCL_INCLUDE_DIR AND TESSERA_NCCL_LIBRARY AND version VERSION_LESS 2.28)
      message(STATUS "tessera: comm/nccl.cuh is neither compiled nor tested: ${TESSERA_NCCL_INCLUDE_DIR}/nccl.h is of "
        "NCCL ${version} but its tests need 2.28")
    elseif(TESSERA_NCCL_INCLUDE_DIR AND TESSERA_NCCL_LIBRARY)
      add_library(tessera_nccl INTERFACE)
      target_include_directories(tessera_nccl SYSTEM INTERFACE "${TESSERA_NCCL_INCLUDE_DIR}")
      target_link_libraries(tessera_nccl INTERFACE "${TESSERA_NCCL_LIBRARY}")
    else()
      message(STATUS "tessera: comm/nccl.cuh is neither compiled nor tested: there is no nccl.h or no libnccl "
        "(TESSERA_NCCL_INCLUDE_DIR, TESSERA_NCCL_LIBRARY)")
    endif()
  endif()
endfunction()

# Lets a target find nccl.h, and links nothing: that comm/nccl.cuh needs no library where nobody uses it is seen so.
function(tessera_use_nccl_header target)
  if(TARGET tessera_nccl)
    target_include_directories(${target} SYSTEM PRIVATE "${TESSERA_NCCL_INCLUDE_DIR}")
  endif()
endfunction()
