// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/loss_runs.cuh"

TESSERA_BENCH_BACKWARD_PASSES(template);
