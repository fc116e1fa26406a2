// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/offload_runs.cuh"

TESSERA_TEST_OFFLOADED_ELEMENTS(template, tessera::bfloat16);
TESSERA_TEST_OFFLOADED_SELECTOR(template, tessera_test::landmarks);
TESSERA_TEST_OFFLOADED_DIRECTIONS(template);
