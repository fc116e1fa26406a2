// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/codecs.hpp"

TESSERA_TEST_LOSSLESS_CODECS(template, tessera::cpu);
TESSERA_TEST_LOSSY_CODECS(template, tessera::cpu);
