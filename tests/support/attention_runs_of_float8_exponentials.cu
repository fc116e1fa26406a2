// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/attention_runs.cuh"

TESSERA_TEST_ATTENTION_ON_HOPPER(template, tessera_test::float8_exponentials, tessera::bfloat16);
