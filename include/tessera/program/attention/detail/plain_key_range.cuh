// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `plain_key_range`: the keys of a split, and which tiles of them every row of a block of queries sees whole.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/attention/detail/key_cursor.hpp>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/pipelined.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The keys from `first` to `end` - 1. All rows see all of the tiles that begin from `first_plain` to `end_plain` - 1,
/// none of which is the sequence's first.
struct plain_key_range {
  int first;
  int end;
  int first_plain;
  int end_plain;

  /// The steps of a loop over the tiles.
  [[nodiscard]] __device__ __forceinline__ step_range tiles(int tile_keys) const {
    return {0, (end - first) / tile_keys};
  }
  /// The keys of split `split` of `splits`, in whole tiles, for a block of `rows` queries.
  template <class Block>
  __device__ __forceinline__ static plain_key_range of(Block const& at, int rows, int tile_keys, int split,
                                                       int splits) {
    key_interval const seen = at.seen();
    int const lowest = static_cast<int>(seen.first / tile_keys);
    int const count = max(static_cast<int>(divide_up(seen.end, std::int64_t{tile_keys})) - lowest, 0);
    int const each = static_cast<int>(divide_up(std::int64_t{count}, std::int64_t{splits}));
    int const begin = min(split * each, count);
    int const end = min(begin + each, count);
    key_interval const of_first = at.mask.of(at.first_query);
    key_interval const of_last = at.mask.of(at.first_query + rows - 1);
    int const all_end = of_last.end > 0 ? static_cast<int>(of_first.end) : 0;
    return {uniform((lowest + begin) * tile_keys), uniform((lowest + end) * tile_keys),
            uniform(max(tile_keys, static_cast<int>(of_last.first))), uniform(all_end - tile_keys + 1)};
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
