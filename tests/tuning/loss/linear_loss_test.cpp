// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>

#include "support/catch.hpp"
#include "tuning/gemm/gemm_limits.hpp"

using namespace tessera;
using tessera_test::within_gemm_limits;

namespace {

/// The law of loss_part_costs, in double: turns of the clusters times the time of a turn.
double cost_of_part(double tokens, double channels, double entries) {
  double const rows = std::ceil(tokens / 256);
  double const across = std::ceil(channels / 192);
  double const panels = std::ceil(entries / 256);
  double const logits = std::ceil(rows * std::ceil(entries / 192) / 66) * std::ceil(channels / 64) * 192;
  double const k_tiles = across * (panels * std::ceil(tokens / 64) + rows * std::ceil(entries / 64));
  double const products = (panels + rows) * across;
  double const gradients = std::ceil(products / 66) * 192 * (k_tiles / products);
  return (logits + gradients + 38400) / entries;
}

}  // namespace

TEST_CASE("tunings of the loss keep the laws, and their stages and registers fit a multiprocessor", "[host]") {
  CHECK(testing::check_laws<within_gemm_limits<warpgroup_loss_tuning>>().text().empty());
  CHECK(testing::check_laws<within_gemm_limits<warpgroup_loss_gradient_tuning>>().text().empty());
  CHECK(testing::check_laws<within_gemm_limits<warpgroup_loss_product_tuning>>().text().empty());
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

TEST_CASE("the cost of a part of the vocabulary is that of its turns of clusters", "[host]") {
  for (std::int64_t const tokens : {1, 255, 256, 257, 8192}) {
    for (std::int64_t const channels : {1, 64, 193, 2304}) {
      for (std::int64_t const entries : {1, 192, 257, 6912, 128256}) {
        CAPTURE(tokens, channels, entries);
        double const expected =
            cost_of_part(static_cast<double>(tokens), static_cast<double>(channels), static_cast<double>(entries));
        CHECK(loss_part_costs::cost(tokens, channels, entries) == Approx(expected).epsilon(1e-12));
      }
    }
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

TEST_CASE("a part of the vocabulary for rings fills launches, and is not much smaller than it may be", "[host]") {
  for (std::int64_t const tokens : {1, 129, 8192, 100000}) {
    for (std::int64_t const channels : {8, 2304, 4096}) {
      for (std::int64_t const most : {128, 384, 1000, 6912, 128256}) {
        for (std::int64_t const workers : {2, 216, 264}) {
          CAPTURE(tokens, channels, most, workers);
          std::int64_t const found = ring_part_entries(tokens, channels, most, 128, workers);
          CHECK(found % 128 == 0);
          CHECK(found > 0);
          CHECK(found <= most);
          CHECK(found >= most / 128 * 128 - most / 4);
        }
      }
    }
  }
  // 53 rows of entries make 2106 tiles of products, 8 for each of 264 workers less 6, and 3392 of logits, 13 less 40.
  CHECK(ring_part_entries(8192, 2304, 6912, 128, 264) == 6784);
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

TEST_CASE("where memory is short a part has fewer tokens and more entries", "[host]") {
  auto const chosen = [](std::int64_t tokens, std::int64_t channels, std::int64_t entries,
                         std::int64_t vocabulary = 128256) {
    loss_chunk const chunk = choose_loss_chunk(tokens, vocabulary, channels, entries);
    CHECK(chunk.tokens * chunk.entries <= tokens * entries);
    return chunk;
  };
  loss_chunk const quarter = chosen(8192, 2304, 512);  // what 10 MiB have room for
  CHECK(quarter.tokens == 2048);
  CHECK(quarter.entries == 2048);
  loss_chunk const deeper = chosen(8192, 4096, 512);
  CHECK(deeper.tokens == 2048);
  CHECK(deeper.entries == 2048);                         // rows of fewer would be awaited by all clusters
  CHECK(chosen(8192, 2304, 6912).tokens == 8192);        // with the usual memory
  CHECK(chosen(8192, 2304, 512, 512).tokens == 8192);    // all of a vocabulary
  CHECK(chosen(8192, 2304, 512, 1000).entries <= 1024);  // and no more than that
  for (std::int64_t const tokens : {1, 7, 255, 256, 257, 513}) {
    loss_chunk const few = chosen(tokens, 64, 128);
    CHECK((few.tokens == tokens || (few.tokens % 256 == 0 && few.tokens < tokens)));
  }
}

TEST_CASE("beside a reduction over ranks come as many products as it takes time, where that gains some", "[host]") {
  using products = loss_products_beside_reduction;
  auto const of = [](std::int64_t tokens, std::int64_t entries, std::int64_t channels, std::int64_t late_workers) {
    return products{divide_up(entries, std::int64_t{256}),
                    divide_up(tokens, std::int64_t{256}),
                    divide_up(channels, std::int64_t{192}),
                    66,
                    late_workers,
                    products::steps_of(tokens),
                    products::steps_of(entries),
                    products::reduction_of(tokens * channels * 2)};
  };
  CHECK(of(8192, 7040, 2304, 54).late_panels() == 9);  // 612 tiles are ten turns of 66, and 108 two of 54
  CHECK(of(8192, 5632, 4096, 54).late_panels() == 9);  // 990 are 15 turns, and 198 four
  std::int64_t const of_all = of(8192, 128000, 2304, 54).late_panels();  // hidden states have tiles 15 times as long
  CHECK((of_all > 5 && of_all < 40));
  CHECK(of(8192, 7040, 2304, 54).early_hidden_panels(8) == 24);
  CHECK(of(8192, 7040, 2304, 1).late_panels() == 0);  // one worker would take longer than the reduction
  CHECK(of(8192, 7040, 2304, 1).early_hidden_panels(8) == 32);
  CHECK(of(256, 256, 64, 54).early_hidden_panels(1) == 1);
  for (std::int64_t entries = 256; entries < 40000; entries += 256) {
    for (std::int64_t const channels : {64, 2304, 4096}) {
      std::int64_t const late = of(1000, entries, channels, 58).late_panels();
      CHECK((late >= 0 && late <= entries / 256));
    }
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
