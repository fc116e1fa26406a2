// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/page_runs.cuh"

TESSERA_TEST_PAGES_ON_DEVICES(template);
