# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What the build tree and tesseraConfig.cmake (in a consumer's scope) both need to know about CUDA.
include_guard()

set(TESSERA_CUDA_MINIMUM 12.8)

# CMake before 3.25.2 has no C++20 entry for nvcc: cuda_std_20 is an error there and CMAKE_CUDA_STANDARD 20 is ignored.
# Later versions define these variables themselves.  With PARENT the including project gets them, too.
macro(tessera_polyfill_cuda20)
  if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.0
      AND NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_COMPILE_FEATURES "cuda_std_20")
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES "cuda_std_20")
    if(NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR AND "${ARGN}" STREQUAL "PARENT")
      foreach(tessera_variable CMAKE_CUDA20_STANDARD_COMPILE_OPTION CMAKE_CUDA20_EXTENSION_COMPILE_OPTION
          CMAKE_CUDA20_COMPILE_FEATURES CMAKE_CUDA_COMPILE_FEATURES)
        set(${tessera_variable} "${${tessera_variable}}" PARENT_SCOPE)
      endforeach()
    endif()
  endif()
endmacro()

# FindCUDAToolkit of CMake 3.25 stops with "could not find TARGET CUDA::nvToolsExt" on CUDA 13 when the project asks
# for CMake 3.25 or later; it does not when the project asks for 3.24.
macro(tessera_find_cuda_toolkit)
  set(tessera_saved_minimum "${CMAKE_MINIMUM_REQUIRED_VERSION}")
  if(CMAKE_VERSION VERSION_LESS 3.26)
    set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  endif()
  find_package(CUDAToolkit ${ARGN})
  set(CMAKE_MINIMUM_REQUIRED_VERSION "${tessera_saved_minimum}")
endmacro()

# The CCCL of the toolkit that was found, unless the project brought its own.  Its config reports its parts even
# under QUIET, hence the log level.
macro(tessera_find_cccl)
  if(NOT TARGET CCCL::CCCL)
    set(tessera_saved_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
    set(CMAKE_MESSAGE_LOG_LEVEL NOTICE)
    find_package(CCCL 3.0 CONFIG QUIET ${ARGN}
      HINTS "${CUDAToolkit_LIBRARY_DIR}/cmake" "${CUDAToolkit_LIBRARY_ROOT}/lib64/cmake")
    set(CMAKE_MESSAGE_LOG_LEVEL "${tessera_saved_log_level}")
  endif()
endmacro()

# TARGET is the new interface library, BASE the host library it extends.  A .cu program gets nvcc's own choice of the
# runtime library (static); a program linked by the C++ compiler gets the shared one.
function(tessera_define_cuda_target target base)
  target_link_libraries(${target} INTERFACE ${base} CCCL::CCCL CUDA::toolkit
    "$<$<NOT:$<LINK_LANGUAGE:CUDA>>:CUDA::cudart>")
  if(CMAKE_CUDA_COMPILER_LOADED)
    target_compile_features(${target} INTERFACE cuda_std_20)
  endif()
endfunction()

# Makes tessera::cuda in a user's project, which has tessera::tessera. tessera_CUDA_FOUND says whether there was a
# toolkit for it.
macro(tessera_import_cuda_target)
  set(tessera_CUDA_FOUND FALSE)
  tessera_find_cuda_toolkit(${TESSERA_CUDA_MINIMUM} QUIET)
  if(CUDAToolkit_FOUND)
    tessera_find_cccl()
  endif()
  if(TARGET CCCL::CCCL)
    set(tessera_CUDA_FOUND TRUE)
    if(CMAKE_CUDA_COMPILER_LOADED)
      tessera_polyfill_cuda20()
    endif()
    if(NOT TARGET tessera::cuda)
      add_library(tessera::cuda INTERFACE IMPORTED)
      tessera_define_cuda_target(tessera::cuda tessera::tessera)
      tessera_check_cuda_architectures(tessera::cuda)
    endif()
  endif()
endmacro()

# A host project's architectures are checked before anything is compiled for them: below 80 nothing compiles, and 90
# without the "a" has no wgmma. TESSERA_ACCEPT_SM_90 says that the latter is meant, here and to the compiler.
function(tessera_check_cuda_architectures target)
  if(TESSERA_ACCEPT_SM_90)
    target_compile_definitions(${target} INTERFACE TESSERA_ACCEPT_SM_90)
  endif()
  set(architectures "${CMAKE_CUDA_ARCHITECTURES}")
  if(architectures MATCHES "^(native|all|all-major)$")
    string(REPLACE "-" "_" chosen "${architectures}")
    string(TOUPPER "CMAKE_CUDA_ARCHITECTURES_${chosen}" chosen)
    set(architectures "${${chosen}}")
  endif()
  set(too_old "")
  foreach(architecture IN LISTS architectures)
    if(architecture MATCHES "^([0-9]+)(-real|-virtual)?$")
      if(CMAKE_MATCH_1 LESS 80)
        list(APPEND too_old "${CMAKE_MATCH_1}")
      elseif(CMAKE_MATCH_1 EQUAL 90 AND NOT TESSERA_ACCEPT_SM_90)
        message(WARNING "tessera: CMAKE_CUDA_ARCHITECTURES is \"${CMAKE_CUDA_ARCHITECTURES}\": "
          "for 90 without the \"a\" there is no wgmma, and much is slow. Set 90a, or TESSERA_ACCEPT_SM_90 to ON if 90 "
          "is meant.")
      endif()
    endif()
  endforeach()
  if(too_old)
    list(REMOVE_DUPLICATES too_old)
    string(REPLACE ";" ", " too_old "${too_old}")
    message(WARNING "tessera: CMAKE_CUDA_ARCHITECTURES is \"${CMAKE_CUDA_ARCHITECTURES}\", but sources that use "
      "tessera::cuda do not compile for ${too_old}: 80 is the least. Set it before project(), 90a for an H100 or H200.")
  endif()
endfunction()
