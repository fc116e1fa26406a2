// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/tuning/attention/forward_by_warps.hpp>
#include <tessera/view/attention_shape.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

int sets_of(std::int64_t heads, std::int64_t queries, std::int64_t keys, bool has_window = false) {
  return forward_by_warps_tuning{}(attention_shape{2, heads, 1, queries, keys, 128}, has_window, 132).sets;
}

int warps_of_64(std::int64_t heads, std::int64_t queries, bool has_left_end, std::int64_t shared_bytes) {
  return forward_by_warps_tuning::warps_of_64(attention_shape{1, heads, 1, queries, 16384, 64}, has_left_end,
                                              shared_bytes, 84);
}

}  // namespace

TEST_CASE("eight warps have 64 channels where a multiprocessor has no room for two thread blocks of four") {
  constexpr std::int64_t small = 99 * 1024;
  CHECK(warps_of_64(32, 16384, false, small) == 8);
  CHECK(warps_of_64(32, 16384, false, 163 * 1024) == 4);
  CHECK(warps_of_64(32, 16384, true, small) == 4);
  CHECK(warps_of_64(21, 1024, false, small) == 8);  // two turns of 128 rows, one of 256
  CHECK(warps_of_64(10, 1024, false, small) == 4);  // one turn of either
  CHECK(warps_of_64(31, 1024, false, small) == 8);  // three turns, two
  CHECK(warps_of_64(0, 0, false, small) == 8);      // nothing
}

TEST_CASE("two sets of rows are for long sequences without a window") {
  CHECK(sets_of(16, 16384, 16384) == 2);
  CHECK(sets_of(16, 16384, 16384, true) == 1);
  CHECK(sets_of(16, 8192, 8192) == 2);
  CHECK(sets_of(16, 8192, 8191) == 1);
  CHECK(sets_of(0, 0, 0) == 1);
}

TEST_CASE("two sets of rows are for blocks that are filled, and enough") {
  CHECK(sets_of(32, 1024, 16384) == 2);
  CHECK(sets_of(32, 1023, 16384) == 1);
  CHECK(sets_of(16, 4096, 16384) == 2);
  CHECK(sets_of(16, 4097, 16384) == 1);      // the last block would have one row in 256
  CHECK(sets_of(16, 4225, 16384) == 2);      // 129 rows
  CHECK(sets_of(16, 16385, 16384) == 2);     // one of many blocks
  CHECK(sets_of(15, 2112 * 2, 16384) == 1);  // half of the last block is empty
  CHECK(sets_of(2, 16384, 16384) == 2);      // 496 rows for each multiprocessor
  CHECK(sets_of(1, 31488, 16384) == 1);      // 477
}
