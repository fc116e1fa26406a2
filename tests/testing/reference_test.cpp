// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/testing/reference.hpp>

#include "support/catch.hpp"

using namespace tessera::testing;

TEST_CASE("the reference product is the product of matrices", "[host]") {
  CHECK(reference_multiply({1, 2, 3, 4, 5, 6}, {1, 0, 2, -1, 0, 1}, 2, 2, 3) == std::vector<double>{5, 1, 14, 1});
}

TEST_CASE("the reference log-sum-exp has the known values", "[host]") {
  CHECK(reference_log_sum_exp({0.0F, 0.0F}) == Approx(std::log(2.0)));
  CHECK(reference_log_sum_exp({}) == -std::numeric_limits<double>::infinity());
  CHECK(reference_log_sum_exp({5000.0F}) == 5000.0);
}

TEST_CASE("the reference angle is exact at both ends", "[host]") {
  CHECK(reference_angle({1, 0}, {5, 0}) == 0.0);
  CHECK(reference_angle({1, 0}, {-5, 0}) == Approx(std::acos(-1.0)));
  CHECK(reference_angle({1, 0}, {1, 1e-9}) == Approx(1e-9));
}

TEST_CASE("the reference selection prefers earlier indices", "[host]") {
  CHECK(reference_top_k({1, 3, 3, 2}, 2) == std::vector<std::int64_t>{1, 2});
  CHECK(reference_top_k({1, 1, 1}, 1) == std::vector<std::int64_t>{0});
}
