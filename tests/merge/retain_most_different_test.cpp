// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <vector>

#include <tessera/merge/retain_most_different.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("the range rule keeps the uppermost part of the range of angles", "[host]") {
  minimum_maximum_reducer<float> const reducer;
  auto range = reducer.identity();
  std::vector<float> const angles{0.5F, 0.7F, 2.4F, 2.49F, 2.5F};
  for (float angle : angles) {
    reducer.push(range, angle);
  }
  float const threshold = retain_most_different::range(0.05F).threshold(range);
  CHECK(threshold == Approx(2.4).margin(1e-6));
  CHECK(stays_apart(2.5F, threshold));
  CHECK(stays_apart(2.49F, threshold));
  CHECK_FALSE(stays_apart(0.7F, threshold));
  // As printed the paper would keep the most similar pair.
  CHECK_FALSE(stays_apart(0.5F, threshold));
}

TEST_CASE("nothing is more different than others where all angles are equal", "[host]") {
  CHECK(retain_most_different::range(0.05F).threshold(interval<float>{0.0F, 0.0F}) == no_threshold);
  CHECK(retain_most_different::range(0.05F).threshold(minimum_maximum_reducer<float>{}.identity()) == no_threshold);
  CHECK_FALSE(stays_apart(3.1F, no_threshold));
}

TEST_CASE("angles that are equal but for rounding do not tell pairs apart", "[host]") {
  CHECK_FALSE(tells_apart({0.9F, 0.9F}));
  CHECK_FALSE(tells_apart({0.9F, 0.91F}));
  CHECK(tells_apart({0.9F, 0.92F}));
  CHECK_FALSE(tells_apart(minimum_maximum_reducer<float>{}.identity()));
  CHECK_FALSE(tells_apart({NAN, NAN}));
  CHECK(retain_most_different::range(0.05F).threshold(interval<float>{0.9F, 0.91F}) == no_threshold);
}

TEST_CASE("rules say what they need", "[host]") {
  CHECK(retain_most_different{}.needs_angles());
  CHECK(retain_most_different::fraction(0.02F).needs_angles());
  CHECK(retain_most_different::fraction(0.02F).most(1000) == 20);
  CHECK_FALSE(retain_most_different::angle(1.0F).needs_angles());
  CHECK(retain_most_different::angle(1.0F).threshold() == 1.0F);
  CHECK(retain_most_different::none().threshold() == no_threshold);
  CHECK(stays_apart(NAN, 1.0F));
  CHECK(is_nearly_opposite(3.1F));
  CHECK_FALSE(is_nearly_opposite(3.0F));
}
