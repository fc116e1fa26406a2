// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/support/distance.hpp"

#include <cmath>

#include "support/catch.hpp"

using tessera_examples::distance;

TEST_CASE("the report's distances are relative to what is expected", "[host]") {
  distance apart;
  apart.add(3, 0);
  apart.add(0, 4);
  CHECK(apart.relative() == Approx(5.0 / 4));
  CHECK(apart.cosine() == 0);
  distance same;
  same.add(-2, -2);
  same.add(1, 1);
  CHECK(same.relative() == 0);
  CHECK(same.cosine() == Approx(1));
  distance longer;
  longer.add(6, 3);
  longer.add(8, 4);
  CHECK(longer.relative() == Approx(1));
  CHECK(longer.cosine() == Approx(1));
  distance opposite;
  opposite.add(-1, 1);
  CHECK(opposite.relative() == Approx(2));
  CHECK(opposite.cosine() == Approx(-1));
}
