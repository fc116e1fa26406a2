// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/attention_runs.hpp"

TESSERA_TEST_ATTENTION_RUNS(template);
