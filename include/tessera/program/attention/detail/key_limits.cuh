// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `key_limits`: the columns of a tile of scores that the rows of a warpgroup see (sm_90a).
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>

namespace tessera {
inline namespace v0 {

/// Which keys of a tile are hidden from some rows: none, those from some key on, or also those before some key.
enum class tile_mask { none, behind, both };

/// The columns of a tile that the rows of a warp see: a band, and only those of keys that there are.
struct key_limits {
  using rows = warpgroup_rows<float, 8>;  ///< of any number of columns: values of rows are the same
  warpgroup_lane lane;                    ///< whose rows these are
  int first;                              ///< the first column that the warp's first row sees; a further row, one more
  rows::row_values<int> end;              ///< one past the last column that a row sees

  /// The limits of the rows of `lane`, of which the first one sees keys `low` to `high` - 1, and each further row keys
  /// that are one further, up to `keys` - 1. `first_key`: the key of column 0.
  __device__ __forceinline__ static key_limits of(warpgroup_lane lane, std::int32_t low, std::int32_t high,
                                                  std::int32_t keys, std::int32_t first_key) {
    key_limits limits{lane, low - first_key, {}};
    rows::each_row(
        lane, [=](int row, int& end) { end = min(high - first_key + row, keys - first_key); }, limits.end);
    return limits;
  }
};

}  // namespace v0
}  // namespace tessera
