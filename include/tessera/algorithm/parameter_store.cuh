// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// parameter_store on CUDA devices: include it and use parameter_store as on the CPU, with a tessera::cuda executor.
/// The codec's CUDA programs are used, and prefetches run on a stream of their own.
#pragma once

#include <tessera/algorithm/compressed_weights.cuh>
#include <tessera/algorithm/parameter_store.hpp>
#include <tessera/exec/side_queue.cuh>
