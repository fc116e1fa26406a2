// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/subspace/key_product_schedule.hpp>
#include <tessera/program/subspace/sum_gram_parts.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/view.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

struct key_block {
  std::int64_t heads;
  std::int64_t tokens;
  std::int64_t channels;
  std::vector<float> values = {};

  [[nodiscard]] std::int64_t width() const { return heads * channels; }
  [[nodiscard]] view<float const, 3> all() const { return {values.data(), {heads, tokens, channels}}; }
  [[nodiscard]] float at(std::int64_t token, std::int64_t channel) const {
    return all()(channel / channels, token, channel % channels);
  }
};

key_block make_keys(std::int64_t heads, std::int64_t tokens, std::int64_t channels) {
  key_block made{heads, tokens, channels};
  made.values.resize(static_cast<std::size_t>(heads * tokens * channels));
  for (std::size_t i = 0; i < made.values.size(); ++i) {
    made.values[i] = std::round(4.0F * testing::gauss().value(3, i));  // sums of products are exact
  }
  return made;
}

/// Reads as TMA does: zeros outside.
float read(view<float const, 3> heads, head_coordinate at, std::int64_t row, std::int64_t column) {
  std::int64_t const at_row = at.row + row;
  std::int64_t const at_column = at.column + column;
  bool const is_inside = at.head < heads.extent(0) && at_row < heads.extent(1) && at_column < heads.extent(2);
  return is_inside ? heads(at.head, at_row, at_column) : 0.0F;
}

/// Computes the sums of a tile box by box, as head_products does, and passes row, column and sum to `store`.
template <class Schedule, class Store>
void multiply_tile(Schedule const& schedule, head_work_item const& item, view<float const, 3> a, view<float const, 3> b,
                   bool is_across, int columns, Store const& store) {
  std::vector<float> sums(static_cast<std::size_t>(Schedule::tile * columns));
  std::vector<float> a_box(head_box * head_box);
  std::vector<float> b_box(head_box * head_box);
  for (std::int32_t k_tile = 0; k_tile < item.k_tiles; ++k_tile) {
    for (int row = 0; row < Schedule::tile; row += head_box) {
      for (int at = 0; at < head_box * head_box; ++at) {
        a_box[static_cast<std::size_t>(at)] =
            read(a, schedule.a_coordinate(item, row, k_tile), at / head_box, at % head_box);
      }
      for (int column = 0; column < columns; column += head_box) {
        for (int at = 0; at < head_box * head_box; ++at) {
          int const half = at / head_box / (head_box / 2) * (head_box / 2);  // each block copies half of the rows
          b_box[static_cast<std::size_t>(at)] =
              read(b, schedule.b_coordinate(item, column, half, k_tile), at / head_box - half, at % head_box);
        }
        for (int k = 0; k < head_box; ++k) {
          for (int i = 0; i < head_box; ++i) {
            float const own = a_box[static_cast<std::size_t>(is_across ? k * head_box + i : i * head_box + k)];
            for (int j = 0; own != 0.0F && j < head_box; ++j) {
              sums[static_cast<std::size_t>((row + i) * columns + column + j)] +=
                  own * b_box[static_cast<std::size_t>(k * head_box + j)];
            }
          }
        }
      }
    }
  }
  for (std::int32_t row = 0; row < Schedule::tile; ++row) {
    for (std::int32_t column = 0; column < columns; ++column) {
      store(row, column, sums[static_cast<std::size_t>(row * columns + column)]);
    }
  }
}

/// Adds products to gram part by part, as on a GPU.
template <class Executor>
void add_products_by_boxes(Executor const& exec, key_block const& keys, matrix_view<float> gram) {
  std::int64_t const span = gram_schedule::parts_at_a_time(keys.width()) * gram_schedule::part_tokens;
  std::vector<float> parts(static_cast<std::size_t>(gram_schedule::parts_at_a_time(keys.width()) *
                                                    gram_schedule::part_elements(keys.width())),
                           -77.0F);
  for (std::int64_t first = 0; first < keys.tokens; first += span) {
    gram_schedule const schedule{static_cast<std::int32_t>(keys.channels), static_cast<std::int32_t>(keys.width()),
                                 static_cast<std::int32_t>(first),
                                 static_cast<std::int32_t>(std::min(span, keys.tokens - first))};
    for (std::int32_t index = 0; index < schedule.count(); ++index) {
      head_work_item const item = schedule.at(index);
      multiply_tile(schedule, item, keys.all(), keys.all(), true, gram_schedule::tile,
                    [&](std::int32_t row, std::int32_t column, float sum) {
                      parts.at(static_cast<std::size_t>(schedule.element(item, row, column))) = sum;
                    });
    }
    add_gram_parts const program{schedule, parts, gram};
    exec.run(program, program.groups());
  }
}

}  // namespace

TEST_CASE("boxes of parts of the tokens add up to the products of channels, both halves alike",
          "[host][long][threads]") {
  for (auto const& [heads, channels] : {std::pair<int, int>{1, 64}, {3, 64}, {2, 128}, {3, 192}}) {
    for (std::int64_t const tokens : {1, 7, 63, 64, 65, 130, 2049}) {
      if (tokens > 130 && heads * channels > 192) {
        continue;  // it takes long
      }
      CAPTURE(heads, channels, tokens);
      key_block const keys = make_keys(heads, tokens, channels);
      std::int64_t const width = keys.width();
      std::vector<float> sums(static_cast<std::size_t>(width * width), 3.0F);
      add_products_by_boxes(cpu{.threads = 2}, keys, {sums.data(), {width, width}});
      double worst = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        for (std::int64_t j = 0; j < width; j += i % 5 + 1) {
          double expected = 3.0;
          for (std::int64_t t = 0; t < tokens; ++t) {
            expected += double{keys.at(t, i)} * double{keys.at(t, j)};
          }
          worst = std::max(worst, std::fabs(expected - double{sums[static_cast<std::size_t>(i * width + j)]}));
        }
      }
      CHECK(worst == 0);
    }
  }
}

TEST_CASE("adding parts keeps the rules for programs", "[host]") {
  key_block const keys = make_keys(5, 70, 64);
  std::int64_t const width = keys.width();
  std::vector<float> one(static_cast<std::size_t>(width * width));
  std::vector<float> other(one);
  add_products_by_boxes(cpu{.threads = 1}, keys, {one.data(), {width, width}});
  add_products_by_boxes(testing::adversary{.seed = 9}, keys, {other.data(), {width, width}});
  CHECK(one == other);
}

TEST_CASE("work items of a prompt are all tiles of all parts, each once, in the room there is", "[host]") {
  for (std::int32_t const width : {64, 256, 320, 512, 1024, 2048, 4096}) {
    for (std::int32_t const tokens : {1, 2048, 2049, 26624}) {
      std::int64_t const most = gram_schedule::parts_at_a_time(width) * gram_schedule::part_tokens;
      gram_schedule const schedule{64, width, 4096, static_cast<std::int32_t>(std::min<std::int64_t>(tokens, most))};
      CAPTURE(width, tokens);
      std::set<std::int64_t> firsts;
      std::int64_t k_tiles = 0;
      for (std::int32_t index = 0; index < schedule.count(); ++index) {
        head_work_item const item = schedule.at(index);
        firsts.insert(schedule.element(item, 0, 0));
        k_tiles += item.k_tiles;
        CHECK(item.k_tiles >= 1);
        CHECK(item.row <= item.column);
        CHECK(item.column < schedule.tiles_across());
        CHECK(schedule.element(item, 0, 0) % gram_schedule::tile_elements == 0);
        CHECK(schedule.element(item, 255, 255) <
              gram_schedule::parts_at_a_time(width) * gram_schedule::part_elements(width));
        CHECK(schedule.a_coordinate(item, 0, 0).row == 4096 + item.part * gram_schedule::part_tokens);
      }
      CHECK(static_cast<std::int32_t>(firsts.size()) == schedule.count());
      CHECK(k_tiles == std::int64_t{schedule.tiles()} * ((schedule.tokens + 63) / 64));
    }
  }
  CHECK(gram_schedule::parts_at_a_time(1024) == 13);
  CHECK(gram_schedule::part_elements(1024) * 4 == 10 * 256 * 1024);
}

TEST_CASE("coordinates of a k-tile follow from those of the k-tile before", "[host]") {
  gram_schedule const products{192, 5 * 192, 8192, 3000};
  projection_schedule const projection{192, 5 * 192, 3000};
  auto const check = [](auto const& schedule) {
    for (std::int32_t index = 0; index < schedule.count(); ++index) {
      head_work_item const item = schedule.at(index);
      for (std::int32_t at = 0; at < 256; at += head_box) {
        for (std::int32_t k_tile = 1; k_tile < item.k_tiles; ++k_tile) {
          CHECK(schedule.next_a(schedule.a_coordinate(item, at, k_tile - 1)) ==
                schedule.a_coordinate(item, at, k_tile));
          CHECK(schedule.next_b(schedule.b_coordinate(item, at, 32, k_tile - 1)) ==
                schedule.b_coordinate(item, at, 32, k_tile));
        }
      }
    }
  };
  check(products);
  check(projection);
}

TEST_CASE("boxes of keys and directions add up to coefficients", "[host][slow]") {
  for (std::int64_t const tokens : {1, 64, 255, 256, 300}) {
    key_block const keys = make_keys(2, tokens, 128);
    std::int64_t const rank = 24;
    key_block const directions = make_keys(1, keys.width(), rank);  // one head: width x rank
    projection_schedule const schedule{128, static_cast<std::int32_t>(keys.width()), static_cast<std::int32_t>(tokens)};
    CAPTURE(tokens);
    std::int64_t seen = 0;
    for (std::int32_t index = 0; index < schedule.count(); ++index) {
      head_work_item const item = schedule.at(index);
      multiply_tile(schedule, item, keys.all(), directions.all(), false, 64,
                    [&](std::int32_t row, std::int32_t column, float sum) {
                      std::int64_t const token = item.row * projection_schedule::tile + row;
                      double expected = 0;
                      for (std::int64_t i = 0; token < tokens && column < rank && i < keys.width(); ++i) {
                        expected += double{keys.at(token, i)} * double{directions.at(i, column)};
                      }
                      seen += token < tokens && column < rank ? 1 : 0;
                      if (expected != double{sum}) {
                        FAIL("token " << token << ", coefficient " << column << ": " << sum << " for " << expected);
                      }
                    });
    }
    CHECK(seen == tokens * rank);
  }
}
