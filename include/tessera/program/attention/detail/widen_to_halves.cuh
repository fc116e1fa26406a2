// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `widen_to_halves`: widens codes of values in e4m3 to fp16, for programs that multiply them so and otherwise widen
/// them in each thread block. Tokens lie in the order in which words of four codes become two pairs, and numbers are
/// those of widened_pairs, a widened_pairs::unit() of the codes' (tile/cuda/convert.cuh).
///
/// Cost: 3 bytes of memory for each code: 50 us for 32 heads of 16384 keys of 128 channels at 4 TB/s.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/tile/cuda/convert.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A group takes 1024 times 16 codes.
struct widen_to_halves {
  static constexpr int lanes = 256;
  static constexpr std::int64_t turns = 4;  ///< pieces that a lane widens
  struct scratch_type {};

  uint4 const* codes;   ///< 16 codes each, neighbours in memory
  uint4* halves;        ///< twice as many pieces, of eight numbers each
  std::int64_t pieces;  ///< pieces of `codes`

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(pieces, lanes * turns); }

  /// Widens 16 codes to two pieces.
  __device__ __forceinline__ static void widen(uint4 piece, uint4* to) {
    using pairs = widened_pairs<float8_e4m3>;
    uint2 const a = pairs::of(piece.x);
    uint2 const b = pairs::of(piece.y);
    uint2 const c = pairs::of(piece.z);
    uint2 const d = pairs::of(piece.w);
    to[0] = {a.x, b.x, c.x, d.x};
    to[1] = {a.y, b.y, c.y, d.y};
  }

  template <class G>
  __device__ __forceinline__ void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      std::int64_t const at = (which * turns + turn) * lanes + group.lane;
      if (at < pieces) {
        widen(codes[at], halves + 2 * at);
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
