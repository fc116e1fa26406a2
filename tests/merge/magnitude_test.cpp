// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <vector>

#include <tessera/merge/magnitude.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/testing/reference.hpp>

#include "merge/pair_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::merge_and_restore;

TEST_CASE("factors by least squares leave the least error, and lengths the length", "[host]") {
  auto const pair = random_pair(11, 1.7);
  auto const least = merge_and_restore(slerp_merger<float, least_squares>{}, pair);
  auto const preserved = merge_and_restore(slerp_merger<float>{}, pair);
  CHECK(error_of(least.first, pair.first) < error_of(preserved.first, pair.first));
  CHECK(error_of(least.second, pair.second) < error_of(preserved.second, pair.second));
  CHECK(testing::detail::norm(preserved.first) == Approx(testing::detail::norm(pair.first)).epsilon(1e-6));
  // Any other multiple is farther away.
  for (float factor : {0.98F, 1.02F}) {
    std::vector<float> other = least.first;
    for (float& value : other) {
      value *= factor;
    }
    CHECK(error_of(other, pair.first) > error_of(least.first, pair.first));
  }
}

TEST_CASE("a vector that is restored as it was merged has no length of its own, and zeros stay zeros", "[host]") {
  auto const pair = random_pair(13, 5.0);
  auto const restored = merge_and_restore(slerp_merger<float, as_merged>{}, pair);
  CHECK(restored.first == restored.second);
  CHECK(as_merged::factors({4.0, 0.0, 0.0}, {1.0F, 0.0F}).second == 0.0F);
  CHECK(as_merged::factors({4.0, 0.0, 0.0}, {1.0F, 0.0F}).first == 1.0F);
}

TEST_CASE("factors by least squares of vectors of zeros are their lengths", "[host]") {
  auto const factors = least_squares::factors({0.0, 0.0, 0.0}, {0.0F, 0.0F});
  CHECK(factors.first == 0.0F);
  CHECK(factors.second == 0.0F);
}
