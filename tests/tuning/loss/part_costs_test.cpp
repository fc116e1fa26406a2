// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/tuning/loss/part_costs.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// The law of loss_part_costs for two launches a part: turns of the clusters times the steps of a turn.
double cost_of_part(double tokens, double channels, double entries) {
  double const rows = std::ceil(tokens / 256);
  double const across = std::ceil(channels / 192);
  double const panels = std::ceil(entries / 256);
  double const logits = std::ceil(rows * std::ceil(entries / 192) / 66) * std::ceil(channels / 64);
  double const k_tiles = across * (panels * std::ceil(tokens / 64) + rows * std::ceil(entries / 64));
  double const products = (panels + rows) * across;
  double const gradients = std::ceil(products / 66) * (k_tiles / products);
  return (logits + gradients + 200) / entries;
}

}  // namespace

TEST_CASE("the cost of a part of the vocabulary is that of its turns of clusters", "[host]") {
  for (std::int64_t const tokens : {1, 255, 256, 257, 8192}) {
    for (std::int64_t const channels : {1, 64, 193, 2304}) {
      for (std::int64_t const entries : {1, 192, 257, 6912, 128256}) {
        CAPTURE(tokens, channels, entries);
        double const expected =
            cost_of_part(static_cast<double>(tokens), static_cast<double>(channels), static_cast<double>(entries));
        double const found = loss_part_costs::of_two_launches().of_entry({tokens, channels, entries});
        CHECK(found == Approx(expected).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("tiles of products that are much longer come first, and others beside their last turn", "[host]") {
  auto const costs = loss_part_costs::of_products(192, 66, 0);
  // 704 tiles of hidden states are ten turns and 44 tiles; 22 clusters have 15 of the classifier's in their last turn.
  CHECK(costs.multiplied({704, 2004}, {11022, 128}) == 11 * 2004 + 162 * 128);
  CHECK(costs.multiplied({11022, 128}, {704, 2004}) == 11 * 2004 + 162 * 128);
  CHECK(costs.multiplied({66, 100}, {66, 60}) == 160);  // as long, nearly: turns of the mean length
  CHECK(costs.multiplied({0, 0}, {0, 0}) == 0);
  CHECK(loss_part_costs::of_two_launches().multiplied({704, 2004}, {11022, 128}) >
        costs.multiplied({704, 2004}, {11022, 128}));
}

TEST_CASE("products have tiles of 256 channels where these leave fewer channels over", "[host]") {
  CHECK(multiplies_widely({8192, 4096, 128256}));   // 16 tiles in place of 22, the last of which has a third
  CHECK(!multiplies_widely({8192, 2304, 256000}));  // 12 whole tiles of 192
  CHECK(!multiplies_widely({8192, 2304, 6912}));    // sums of parts are short
  CHECK(!multiplies_widely({300, 64, 2000}));
  CHECK(multiplies_widely({2000, 632, 3001}));  // one turn in place of two
}

TEST_CASE("a part of the vocabulary for rings fills launches, and is not much smaller than it may be", "[host]") {
  for (std::int64_t const tokens : {1, 129, 8192, 100000}) {
    for (std::int64_t const channels : {8, 2304, 4096}) {
      for (std::int64_t const most : {128, 384, 1000, 6912, 128256}) {
        for (std::int64_t const workers : {2, 216, 264}) {
          CAPTURE(tokens, channels, most, workers);
          std::int64_t const found =
              loss_part_costs::of_rings(128, workers).cheapest_entries({tokens, channels, most}, 128);
          CHECK(found % 128 == 0);
          CHECK(found > 0);
          CHECK(found <= most);
          CHECK(found >= most / 128 * 128 - most / 4);
        }
      }
    }
  }
  // 53 rows of entries make 2106 tiles of products, 8 for each of 264 workers less 6, and 3392 of logits, 13 less 40.
  CHECK(loss_part_costs::of_rings(128, 264).cheapest_entries({8192, 2304, 6912}, 128) == 6784);
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
