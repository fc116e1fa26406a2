// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Macros for the compiler: which functions run on host and device, and whether CUDA programs are compiled.
#pragma once

#if __cplusplus < 202002L
#error "tessera needs C++20: -std=c++20"
#endif

/// Marks a function that runs on the host and, when nvcc compiles it, on the device.
#if defined(__CUDACC__)
#define TESSERA_FN __host__ __device__
#else
#define TESSERA_FN
#endif

/// Defined while a compiler for CUDA reads the source, except for NVRTC, which compiles at run time. Where it is
/// defined, a header with overloads or specialisations for CUDA in a .cuh of its name ends by including that .cuh:
///
///     #if defined(TESSERA_COMPILES_CUDA)
///     #include <tessera/algorithm/attention/attention.cuh>
///     #endif
///
/// So a call with a tessera::cuda executor means the same in all sources of a program, whatever else they include.
#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#define TESSERA_COMPILES_CUDA
#endif
