// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/codecs.hpp"

TESSERA_BENCH_CODECS(template, tessera::cpu);
