// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/attention_runs.cuh"

TESSERA_TEST_ATTENTION_ON_DEVICES(template, tessera::sage_attention2, tessera::float16);
