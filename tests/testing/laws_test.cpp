// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/testing/laws.hpp>

#include "support/catch.hpp"

using tessera::testing::check_laws;

TEST_CASE("one header holds the laws of all concepts, told apart by the type", "[host]") {
  CHECK(check_laws<tessera::sum_reducer<int>>({1, 2, 3}).is_empty());
  CHECK(check_laws<tessera::symmetric_quantizer<8>>({1.0F, -2.0F}).is_empty());
}
