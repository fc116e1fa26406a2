// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warp_stages`: the mbarriers of the two stages of keys and the two of values that warps of forward_by_warps fill and
/// read. Warps wait for a stage that is filled, and, where they fill one, for all warps to have read what it has. No
/// warp waits until all are at one place, so that they drift apart by half a tile.
///
/// A lane copies its part of a stage by begin_keys() and begin_values(), waits for `filled` of place_of() before it
/// reads a stage, and tells by end() that its warp has read it.
#pragma once

#include <cstdint>

#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/cuda/sm_80/swizzled_ring.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Sources: warp_operands of the lanes of Block.
template <class Sources, class Block>
struct warp_stages {
  using copies = copies_in_flight<Block>;
  using scratch_type = typename Sources::scratch_type;
  using place_type = ring_place<2>;  ///< a stage, and which use of it

  ring_barriers<2> of_keys;
  ring_barriers<2> of_values;

  __device__ __forceinline__ void begin(Block const& group) {
    of_keys.begin(group);
    of_values.begin(group);
  }
  /// The stage of a tile. It is computed of what all lanes know, and so takes no register of each.
  __device__ __forceinline__ static place_type place_of(unsigned number) {
    return {static_cast<int>(number % 2U), number / 2U % 2U};
  }
  /// Starts to copy the keys of the tile that begins at `first`. Calls begin_more() for what else is copied to their
  /// stage, and is there and is read when they are.
  template <class BeginMore>
  __device__ __forceinline__ void begin_keys(unsigned lane, Sources const& from, int first, place_type const& place,
                                             scratch_type& scratch, BeginMore const& begin_more) {
    of_keys.read[place.stage].wait(place.parity ^ 1U);
    from.begin_keys(lane, first, scratch.k[place.stage]);
    begin_more();
    of_keys.filled[place.stage].arrive_after_copies();
  }
  /// Starts to copy the values of the tile that begins at `first`, if it begins before `end`. Where values are widened,
  /// they have been copied in the last batch but one: widens these, and starts to copy the next.
  __device__ __forceinline__ void begin_values(unsigned lane, Sources const& from, int first, int end,
                                               place_type const& place, scratch_type& scratch) {
    if (first < end) {
      auto& filled = of_values.filled[place.stage];
      if constexpr (Sources::widens) {
        copies::template await<1>();
      }
      of_values.read[place.stage].wait(place.parity ^ 1U);
      if constexpr (Sources::widens) {
        Sources::widen_values(lane, scratch, place.stage);
        filled.arrive();
        if (first + Sources::tile_keys < end) {
          from.begin_values(lane, first + Sources::tile_keys, scratch, place.stage);
        }
      } else {
        from.begin_values(lane, first, scratch, place.stage);
        filled.arrive_after_copies();
      }
    }
    copies::commit();
  }
  /// Tells that the warp has read a stage. read: what was loaded last, or is made of all that was loaded.
  __device__ __forceinline__ static void end(ring_barriers<2>& of, place_type const& place, unsigned lane,
                                             std::uint32_t read) {
    sync_warp();
    of.read[place.stage].arrive_after(read, lane % 32U == 0U);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
