// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The one macro that library code needs: which functions run on both sides.
#pragma once

/// Marks a function that runs on the host and, when nvcc compiles it, on the device.
#if defined(__CUDACC__)
#define TESSERA_FN __host__ __device__
#else
#define TESSERA_FN
#endif
