// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/attention_runs.cuh"

TESSERA_TEST_ATTENTION_ON_HOPPER(template, tessera_test::eight_with_value_means, tessera::float16);
