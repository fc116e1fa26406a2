// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>

#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/tuning/gemm/scaled_linear.hpp>

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

TEST_CASE("rings of products have tiles of warps with 64 columns, and stages that fit the memory of a device",
          "[host]") {
  constexpr gemm_ring_policy plain = gemm_ring_tuning{}(800);
  constexpr gemm_ring_policy wide = wide_gemm_ring_tuning{}(800);
  constexpr gemm_ring_policy tall = tall_gemm_ring_tuning{}(800);
  auto const bytes = [](gemm_ring_policy policy) {
    int const of_rows = policy.lanes / 32 * 16 * 128;  // boxes through which results are written
    return policy.stages * (policy.rows + policy.columns) * policy.bytes + of_rows + 1024;
  };
  CHECK(bytes(plain) <= 99 * 1024);  // sm_86
  CHECK(bytes(wide) <= 163 * 1024);  // sm_80
  CHECK(bytes(tall) <= 227 * 1024);  // sm_90
  CHECK(plain.rows * plain.columns == plain.lanes / 32 * 64 * 64);
  CHECK(wide.rows * wide.columns == wide.lanes / 32 * 64 * 64);
  CHECK(tall.rows * tall.columns == tall.lanes / 32 * 96 * 64);

  constexpr gemm_ring_policy scaled = scaled_ring_tuning{}(800);
  constexpr gemm_ring_policy small = small_scaled_ring_tuning{}(860);
  constexpr gemm_ring_policy widened = widened_scaled_ring_tuning{}(860);
  auto const with_scales = [&](gemm_ring_policy policy) {
    return bytes(policy) - 1024 + policy.stages * (policy.rows + policy.columns) * 4 + 16 * policy.stages;
  };
  CHECK(with_scales(scaled) <= 163 * 1024);
  CHECK(with_scales(small) <= 99 * 1024);
  CHECK(with_scales(widened) <= 99 * 1024);
  CHECK(with_scales(wide_widened_ring_tuning{}(800)) <= 163 * 1024);
  CHECK(small.rows * small.columns == small.lanes / 32 * 48 * 64);
  CHECK(widened.rows * widened.columns == widened.lanes / 32 * 32 * 64);
  CHECK(testing::check_laws<scaled_ring_tuning>().text().empty());
}

TEST_CASE("the cost of a product by a ring counts whole tiles of the multiprocessor with most of them", "[host]") {
  constexpr gemm_ring_policy plain = gemm_ring_tuning{}(800);
  constexpr gemm_ring_policy wide = wide_gemm_ring_tuning{}(800);
  constexpr gemm_ring_policy tall = tall_gemm_ring_tuning{}(800);
  STATIC_REQUIRE(gemm_ring_cost(tall, 192, 256, 132) == 192 * 256 * 100);
  STATIC_REQUIRE(gemm_ring_cost(tall, 193, 256, 1) == 2 * 192 * 256 * 100);
  STATIC_REQUIRE(gemm_ring_cost(wide, 128, 257, 1) == 2 * 128 * 256 * 106);
  STATIC_REQUIRE(gemm_ring_cost(plain, 128, 128, 1) == 128 * 128 * 115);
  STATIC_REQUIRE(gemm_ring_cost(plain, 3 * 128, 128, 1) == 4 * 128 * 128 * 115);
  // Products that were measured on 132 multiprocessors, and ones with few tiles.
  auto const best = [&](std::int64_t rows, std::int64_t columns) {
    std::int64_t const cost[] = {gemm_ring_cost(plain, rows, columns, 132), gemm_ring_cost(wide, rows, columns, 132),
                                 gemm_ring_cost(tall, rows, columns, 132)};
    return std::min_element(cost, cost + 3) - cost;
  };
  CHECK(best(8192, 8192) == 2);
  CHECK(best(8192, 24576) == 2);
  CHECK(best(4096, 4096) == 1);
  CHECK(best(2048, 2048) == 1);
  CHECK(best(1024, 1024) == 0);
  CHECK(best(1, 8192) == 0);
}

TEST_CASE("products with weights from a source take tall tiles where these fill the chip", "[host]") {
  constexpr gemm_ring_policy plain = gemm_ring_tuning{}(800);
  constexpr gemm_ring_policy tall = source_gemm_ring_tuning{}(800);
  STATIC_REQUIRE((tall.rows + tall.columns) * tall.bytes * tall.stages <= 147 * 1024);  // sm_80 has 163
  STATIC_REQUIRE(tall.rows * tall.columns == tall.lanes / 32 * 64 * 64);
  STATIC_REQUIRE(gemm_ring_cost(tall, 257, 128, 1) == 2 * 256 * 128 * 100);
  auto const takes_tall = [&](std::int64_t rows, std::int64_t columns) {
    return gemm_ring_cost(tall, rows, columns, 132) < gemm_ring_cost(plain, rows, columns, 132);
  };
  CHECK(takes_tall(4096, 8192));
  CHECK(takes_tall(512, 8192));
  CHECK_FALSE(takes_tall(256, 8192));
  CHECK_FALSE(takes_tall(17, 8192));
}

TEST_CASE("panels of weights are for fewer tokens where gemm_ring multiplies them", "[host]") {
  STATIC_REQUIRE(panel_gemm_tuning{}(900).least_tokens == 1536);
  STATIC_REQUIRE(panel_gemm_tuning{}(800).least_tokens == 1024);
  STATIC_REQUIRE(panel_gemm_tuning{}(800).rows == 256);
}
