// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/attention_runs.cuh"

TESSERA_TEST_ATTENTION_RUNS_ON_DEVICES(template);
