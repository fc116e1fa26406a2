// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `store_values`: rounds 16 bytes of values and writes them to a tile, for a TileSource whose lanes decode what they
/// load.
///
///     float values[8];                                                  // decoded by this lane
///     store_values<bfloat16>(group, values, is_inside, tile.chunk(row, column));
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {

/// Rounds finite values to a chunk of the type, or writes zeros. Groups of CUDA threads have instructions for it:
/// tile/store_values.cuh.
template <class Value, class G>
TESSERA_FN constexpr void store_values(G const&, float const (&values)[tile_chunk<Value>::size], bool is_inside,
                                       tile_chunk<Value>& to) {
  for (int i = 0; i < tile_chunk<Value>::size; ++i) {
    to.values[i] = is_inside ? store<Value>(values[i]) : Value{};
  }
}

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/store_values.cuh>
#endif
