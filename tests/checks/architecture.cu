// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled for several architectures, to see what is said of them: checks.cmake.
#include <tessera/exec/cuda.cuh>
