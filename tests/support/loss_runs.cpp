// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/loss_runs.hpp"

TESSERA_TEST_LOSS_RUNS(template);
