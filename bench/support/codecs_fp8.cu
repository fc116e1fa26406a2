// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/codecs.cuh"

TESSERA_BENCH_FP8_CODECS(template, tessera::cuda);
