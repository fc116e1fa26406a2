// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>

#include <tessera/config.hpp>

#include "support/catch.hpp"

// The text to which a macro expands.
#define TESSERA_TEST_TEXT(expansion) #expansion
#define TESSERA_TEST_EXPANSION(macro) TESSERA_TEST_TEXT(macro)

TEST_CASE("without nvcc functions are ordinary ones, and no header brings CUDA programs", "[host]") {
#if defined(TESSERA_COMPILES_CUDA)
  FAIL("TESSERA_COMPILES_CUDA is defined for a compiler of the host");
#endif
  CHECK(std::string(TESSERA_TEST_EXPANSION(TESSERA_FN)) == "");
}
