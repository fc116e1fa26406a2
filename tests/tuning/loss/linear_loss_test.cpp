// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>

#include "support/catch.hpp"
#include "tuning/gemm/gemm_limits.hpp"

using namespace tessera;
using tessera_test::within_gemm_limits;

TEST_CASE("tunings of the loss keep the laws, and their stages and registers fit a multiprocessor", "[host]") {
  CHECK(testing::check_laws<within_gemm_limits<warpgroup_loss_tuning>>().text().empty());
  CHECK(testing::check_laws<within_gemm_limits<warpgroup_loss_gradient_tuning>>().text().empty());
  CHECK(testing::check_laws<within_gemm_limits<warpgroup_loss_product_tuning>>().text().empty());
  CHECK(testing::check_laws<within_gemm_limits<wide_warpgroup_loss_product_tuning>>().text().empty());
}

TEST_CASE("the loss gives up pipeline stages to the memory of its rows", "[host]") {
  CHECK(warpgroup_loss_tuning{}.beside(100).stages == 5);
  CHECK(warpgroup_loss_tuning{}.beside(104).stages == 4);
  CHECK(warpgroup_loss_tuning{}.beside(260).stages == 4);
  CHECK(warpgroup_loss_tuning{}.beside(264).stages == 3);
  CHECK(warpgroup_loss_tuning{}.beside(1000000).stages == 0);
  warpgroup_gemm_policy const alone = warpgroup_loss_tuning{}(900);
  CHECK(warpgroup_loss_tuning{}.beside(0) == alone);
  for (int bytes = 0; bytes < 1200; bytes += 4) {
    warpgroup_gemm_policy const found = warpgroup_loss_tuning{}.beside(bytes);
    int const taken = found.stages * 128 * (128 + found.columns) + 256 * bytes;
    CAPTURE(bytes);
    CHECK((found.stages == 0 || taken <= 226 * 1024 - 128));
    CHECK((found.stages == alone.stages || taken + 128 * (128 + found.columns) > 226 * 1024 - 128));
  }
}

TEST_CASE("rings of the loss give up a thread block, and then all, to the memory of its rows", "[host]") {
  gemm_ring_policy const alone = gemm_ring_tuning{}(800);
  CHECK(loss_ring_policy(0) == alone);
  gemm_ring_policy const wide = wide_gemm_ring_tuning{}(800);
  CHECK(wide_loss_ring_policy(0) == wide);
  for (int bytes = 0; bytes < 400; bytes += 4) {
    gemm_ring_policy const found = loss_ring_policy(bytes);
    int const taken = alone.stages * (alone.rows + alone.columns) * alone.bytes + 2 * alone.lanes * bytes + 32;
    CAPTURE(bytes);
    CHECK(loss_ring_bytes(alone, bytes) == taken);
    CHECK((found.blocks == 2) == (taken <= 80 * 1024));
    CHECK(found.stages == (taken <= 98 * 1024 ? alone.stages : 0));
    int const of_wide = wide.stages * (wide.rows + wide.columns) * wide.bytes + 2 * wide.lanes * bytes + 48;
    CHECK(wide_loss_ring_policy(bytes).stages == (of_wide <= 224 * 1024 ? wide.stages : 0));
  }
  CHECK(loss_ring_policy(60).blocks == 2);  // 2 * (80 + 1) KiB of the 164 that sm_80 has
  CHECK(loss_ring_policy(64).blocks == 1);
  CHECK(loss_ring_bytes(wide, 28) <= 159 * 1024);  // states of log-sum-exps, of the 163 KiB of a block there
}

TEST_CASE("passes that keep softmaxes walk through hidden states in three bands", "[host]") {
  for (std::int32_t const columns : {1334, 668}) {
    row_schedule const usual = row_schedule::make(32, columns, 36, 132, 8);
    CHECK(usual.kinds[0].count + usual.kinds[1].count == 1);
    row_schedule const banded = row_schedule::make(32, columns, 36, 132, most_states_with_softmaxes);
    CHECK(banded.kinds[0].count + banded.kinds[1].count == 3);
    CHECK(banded.states() == most_states_with_softmaxes);
    CHECK(banded.steps() * 100 <= usual.steps() * 101);
  }
}

TEST_CASE("ranks add up a quarter of the tokens at a time, or 4 MiB", "[host]") {
  CHECK(rank_reduction_chunk(8192, 4608) == 2048);
  CHECK(rank_reduction_chunk(8192, 512) == 8192);
  CHECK(rank_reduction_chunk(1000, 1 << 20) == 256);
  CHECK(rank_reduction_chunk(0, 0) % 256 == 0);
}

TEST_CASE("a band of a source's rows has whole tiles, in 56 MiB or a quarter of the budget", "[host]") {
  constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
  CHECK(loss_band_entries(256000, 4608, 0) == 12672);  // 66 tiles of 192
  CHECK(loss_band_entries(128256, 8192, 0) / 192 >= 33);
  for (std::int64_t const vocabulary : {1, 255, 256, 257, 30001, 256000}) {
    for (std::int64_t const row_bytes : {0, 16, 4608, 16384}) {
      for (std::int64_t const budget : {std::int64_t{0}, std::int64_t{1}, 10 * mebibyte, 4096 * mebibyte}) {
        std::int64_t const entries = loss_band_entries(vocabulary, row_bytes, budget);
        std::int64_t const most = budget > 0 && budget < 224 * mebibyte ? budget / 4 : 56 * mebibyte;
        CAPTURE(vocabulary, row_bytes, budget, entries);
        CHECK((entries >= 256 && entries % 128 == 0 && entries < vocabulary + 256));
        CHECK((entries == 256 || entries * row_bytes <= most));
      }
    }
  }
}
