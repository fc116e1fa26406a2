// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/codecs.cuh"

TESSERA_BENCH_LOSSY_DECODERS(template, tessera::cuda);
