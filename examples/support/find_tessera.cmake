# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# For an example that is built alone: finds the installed tessera, with tessera::cuda when there is a CUDA compiler.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CMAKE_CUDA_COMPILER nvcc
  HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(CMAKE_CUDA_COMPILER)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real)
  endif()
  enable_language(CUDA)
endif()
find_package(tessera 0.1 CONFIG REQUIRED)
