// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/loss_runs.cuh"

TESSERA_TEST_BF16_STATISTICS_ON_DEVICES(template);
