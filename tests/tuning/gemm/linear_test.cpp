// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tuning/gemm/linear.hpp>

#include "support/catch.hpp"
#include "tuning/gemm/gemm_limits.hpp"

using namespace tessera;
using tessera_test::within_gemm_limits;

TEST_CASE("tunings of products keep the laws, and their stages and registers fit a multiprocessor", "[host]") {
  CHECK(testing::check_laws<within_gemm_limits<warpgroup_gemm_tuning>>().text().empty());
  CHECK(testing::check_laws<within_gemm_limits<small_warpgroup_gemm_tuning>>().text().empty());
}

TEST_CASE("small products have smaller tiles, in blocks of their own", "[host]") {
  constexpr warpgroup_gemm_policy large = warpgroup_gemm_tuning{}(900);
  constexpr warpgroup_gemm_policy small = small_warpgroup_gemm_tuning{}(900);
  CHECK(small.columns * 4 == large.columns);
  CHECK(small.blocks == 1);
}

TEST_CASE("policies of products are equal only if all of their numbers are", "[host]") {
  constexpr warpgroup_gemm_policy policy{256, 2, 4, 8, 24, 240};
  STATIC_REQUIRE(policy == warpgroup_gemm_policy{256, 2, 4, 8, 24, 240});
  STATIC_REQUIRE(policy != warpgroup_gemm_policy{192, 2, 4, 8, 24, 240});
  STATIC_REQUIRE(policy != warpgroup_gemm_policy{256, 1, 4, 8, 24, 240});
  STATIC_REQUIRE(policy != warpgroup_gemm_policy{256, 2, 3, 8, 24, 240});
  STATIC_REQUIRE(policy != warpgroup_gemm_policy{256, 2, 4, 4, 24, 240});
  STATIC_REQUIRE(policy != warpgroup_gemm_policy{256, 2, 4, 8, 32, 240});
  STATIC_REQUIRE(policy != warpgroup_gemm_policy{256, 2, 4, 8, 24, 232});
}
