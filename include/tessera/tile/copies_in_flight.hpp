// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `copies_in_flight<Group>`: copies of 16 bytes to scratch, which run beside the lanes that start them.
///
///     using copies = copies_in_flight<Group>;
///     for (int lane : group) { copies::begin(tile.chunk(lane, column), from + lane, is_inside); }
///     copies::commit();                        // what was begun since the last call is one batch
///     ...                                      // other work
///     copies::template await<1>();             // all but the last batch of the lane's copies are done
///     group.sync();                            // and those of the other lanes
///
/// For groups whose lanes are executed by one thread a copy is done when it was begun. On a GPU from sm_80 on it is
/// done by cp.async (tile/cuda/async_copy.cuh), which takes no register while it is on its way.
#pragma once

#include <tessera/config.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {

template <class G>
struct copies_in_flight {
  /// Starts copying a chunk, or fills it with zeros and reads nothing.
  template <class T>
  TESSERA_FN static void begin(tile_chunk<T>& to, tile_chunk<T> const* from, bool is_copied) {
    to = is_copied ? *from : tile_chunk<T>{};
  }
  /// Starts copying the first `bytes` of a word of `Bytes`, 4 or 8, of which both addresses are multiples, and fills
  /// the others with zeros.
  template <int Bytes>
  TESSERA_FN static void begin_word(void* to, void const* from, int bytes) {
    for (int i = 0; i < Bytes; ++i) {
      static_cast<unsigned char*>(to)[i] =
          i < bytes ? static_cast<unsigned char const*>(from)[i] : static_cast<unsigned char>(0);
    }
  }
  /// Makes the lane's copies since the last call one batch, which may be empty.
  TESSERA_FN static constexpr void commit() {}
  /// Waits until at most the last `Pending` batches of the lane are on their way.
  template <int Pending>
  TESSERA_FN static constexpr void await() {}
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/cuda/async_copy.cuh>
#endif
