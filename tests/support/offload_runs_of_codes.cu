// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/offload_runs.cuh"

TESSERA_TEST_OFFLOADED_ELEMENTS(template, std::int8_t);
TESSERA_TEST_OFFLOADED_SELECTOR(template, tessera_test::coded_landmarks);
