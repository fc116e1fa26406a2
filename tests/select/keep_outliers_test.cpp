// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>

#include <tessera/select/keep_outliers.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("cosines of keys with their mean know zeros and what is not finite", "[host]") {
  keep_outliers<4> const outliers;
  CHECK(outliers.cosine(6.0F, 4.0F, 9.0F) == 1.0F);
  CHECK(outliers.cosine(-6.0F, 4.0F, 9.0F) == -1.0F);
  CHECK(outliers.cosine(0.0F, 0.0F, 0.0F) == 1.0F);
  CHECK(outliers.cosine(0.0F, 0.0F, 2.0F) == 0.0F);
  CHECK(outliers.cosine(NAN, 1.0F, 1.0F) == -INFINITY);
  CHECK(outliers.cosine(1.0F, INFINITY, 1.0F) == -INFINITY);
}
