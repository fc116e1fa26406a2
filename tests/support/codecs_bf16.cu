// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/codecs.cuh"

TESSERA_TEST_BF16_CODECS(template, tessera::cuda);
