// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What library code asks of the compiler: which functions run on both sides, and whether programs for CUDA belong in.
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

/// Defined where a CUDA source is compiled, though not at run time by NVRTC. There a header that has overloads or
/// specialisations for CUDA in a .cuh of its name ends by including it:
///
///     #if defined(TESSERA_COMPILES_CUDA)
///     #include <tessera/algorithm/attention/attention.cuh>
///     #endif
///
/// So all sources of a program mean the same by a call with a tessera::cuda executor, whatever else they include.
#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#define TESSERA_COMPILES_CUDA
#endif
