// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/codecs.hpp"

TESSERA_BENCH_LOSSLESS_CODECS(template, tessera::cpu);
TESSERA_BENCH_LOSSY_ENCODERS(template, tessera::cpu);
TESSERA_BENCH_LOSSY_DECODERS(template, tessera::cpu);
