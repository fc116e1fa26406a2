// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip's codecs as several benchmarks use them, compiled once for all of these: on CUDA devices in codecs_*.cu, on
/// the CPU in codecs.cpp.
#pragma once

#include <tessera/algorithm/weights/compressed_weights.cuh>
#include <tessera/exec/cuda.cuh>

#include "codecs.hpp"

TESSERA_BENCH_LOSSLESS_CODECS(extern template, tessera::cuda);
TESSERA_BENCH_LOSSY_DECODERS(extern template, tessera::cuda);
