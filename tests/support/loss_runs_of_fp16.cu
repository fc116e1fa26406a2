// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/loss_runs.cuh"

TESSERA_TEST_FP16_LOSS_ON_DEVICES(template);
