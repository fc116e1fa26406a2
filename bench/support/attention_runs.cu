// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/attention_runs.cuh"

TESSERA_BENCH_ATTENTION(template);
