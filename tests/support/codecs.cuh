// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Lossless coding on CUDA devices, compiled once for all tests (in codecs_*.cu); see codecs.hpp.
#pragma once

#include <tessera/algorithm/weights/compressed_weights.cuh>
#include <tessera/exec/cuda.cuh>

#include "support/codecs.hpp"

TESSERA_TEST_LOSSLESS_CODECS(extern template, tessera::cuda);
