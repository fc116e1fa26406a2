// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/program/attention/detail/forward_band.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

bool sees(key_band band, std::int32_t row, std::int32_t key) {
  return key >= row + band.first && key <= row + band.last;
}

/// Whether some, and whether all rows see keys of a tile.
struct sight {
  bool some = false;
  bool all = true;
};
sight sight_of(key_band band, row_range rows, std::int32_t keys, std::int32_t tile) {
  sight found;
  for (std::int32_t row = rows.begin; row < rows.end; ++row) {
    for (std::int32_t key = tile * attention_tile_keys; key < (tile + 1) * attention_tile_keys; ++key) {
      bool const is_seen = key < keys && sees(band, row, key);
      found.some = found.some || is_seen;
      found.all = found.all && is_seen;
    }
  }
  return found;
}

}  // namespace

TEST_CASE("A block of queries gets all tiles of keys that it sees, and no mask where it sees all keys") {
  for (std::int32_t const queries : {1, 70, 129, 300}) {
    for (std::int32_t const keys : {1, 127, 128, 300, 513}) {
      for (key_band const band : {key_band{}, key_band::causal(queries, keys), key_band{-130, 60}, key_band{77, 300}}) {
        for (std::int32_t first = 0; first < queries; first += 64) {
          row_range const rows{first, first + 64 < queries ? first + 64 : queries};
          tile_range const range = band.tiles(rows, keys);
          for (std::int32_t tile = 0; tile * attention_tile_keys < keys; ++tile) {
            sight const found = sight_of(band, rows, keys, tile);
            CHECK((!found.some || (tile >= range.begin && tile < range.end)));
            CHECK(found.all == (tile >= range.full_begin && tile < range.full_end));
          }
        }
      }
    }
  }
}

TEST_CASE("A band moves to where that of a sequence of other lengths is") {
  constexpr std::int32_t extents[] = {1, 70, 300, (1 << 29) - 1};
  constexpr std::int64_t sizes[] = {-1, 0, 60, (1 << 29) - 1, 1 << 30, std::int64_t{1} << 40};
  for (std::int32_t const queries : extents) {
    for (std::int32_t const keys : extents) {
      for (std::int64_t const left : sizes) {
        for (std::int64_t const right : sizes) {
          key_band const band = key_band::of({queries, keys, left, right});
          for (std::int32_t const own_queries : {1, 64, queries / 2 + 1, queries}) {
            for (std::int32_t const own_keys : {0, 1, 129, keys}) {
              attention_mask const mask{own_queries, own_keys, left, right};
              key_band const moved = band.moved((own_keys - own_queries) - (keys - queries));
              for (std::int32_t const row : {0, own_queries / 2, own_queries - 1}) {
                if (own_queries > queries || own_keys > keys) {
                  continue;
                }
                key_interval const seen = mask.of(row);
                std::int64_t const first = clamp(row + moved.first, 0, own_keys);
                std::int64_t const end = clamp(row + moved.last + 1, 0, own_keys);
                CHECK((seen.first < seen.end ? first == seen.first && end == seen.end : first >= end));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("Causal attention is aligned to the last query and the last key") {
  key_band const band = key_band::causal(1000, 1500);
  CHECK(sees(band, 999, 1499));
  CHECK(sees(band, 0, 500));
  CHECK_FALSE(sees(band, 0, 501));
  CHECK(band.tiles({128, 256}, 1500).end == 6);
  CHECK(band.tiles({128, 256}, 1500).full_end == 4);
  CHECK(key_band::causal(500, 300).tiles({0, 128}, 300).count() == 0);
}

TEST_CASE("A schedule names each block of each head once, the longest of a section first") {
  attention_schedule const schedule{37, 9, 8, true};
  std::vector<int> seen(37 * 9);
  for (std::int32_t i = 0; i < schedule.count(); ++i) {
    attention_work_item const work = schedule.at(i);
    ++seen[static_cast<std::size_t>(work.head * 9 + work.block)];
    CHECK(work.head / 8 == i / 72);
  }
  for (int const times : seen) {
    CHECK(times == 1);
  }
  CHECK(schedule.at(0).block == 8);
  CHECK(schedule.at(8).block == 7);
  CHECK(attention_schedule{37, 9, 8, false}.at(10).head == 1);
}
