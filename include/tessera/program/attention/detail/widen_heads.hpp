// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `widen_heads`: widens the codes of queries and keys that lie two to a byte to those of in_high_bits
/// (quantize/in_high_bits.hpp), in bytes, with their scales, for programs that multiply bytes.
///
/// Cost: 1.5 bytes of memory for each code: 65 us for 32 heads of 16384 queries and keys of 128 channels at 3 TB/s.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/int4.hpp>

namespace tessera {
inline namespace v0 {

/// Widens codes of queries and of keys. A group takes 1024 times 32 codes.
struct widen_heads {
  static constexpr int lanes = 256;
  static constexpr std::int64_t turns = 4;  ///< pieces that a lane widens
  struct scratch_type {};

  /// 32 codes two to a byte.
  struct alignas(16) piece {
    std::uint32_t words[4];  ///< eight codes each, the first in the lowest bits
  };
  /// Codes and scales of queries or of keys.
  struct list {
    piece const* pairs;          ///< codes two to a byte
    piece* codes;                ///< twice as many pieces: the codes times 16, a byte each
    std::int64_t pieces;         ///< pieces of `pairs`
    float const* scales;         ///< scales of the codes
    float* scales_of_sixteenth;  ///< scales of 16 times the codes
    std::int64_t scale_count;    ///< how many scales there are

    /// What is widened by its number: pieces, and scales with them.
    TESSERA_FN constexpr std::int64_t count() const { return max(pieces, scale_count); }
  };

  list queries;  ///< codes of queries
  list keys;     ///< codes of keys

  TESSERA_FN constexpr std::int64_t groups() const {
    return divide_up(queries.count(), lanes * turns) + divide_up(keys.count(), lanes * turns);
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const of_queries = divide_up(queries.count(), lanes * turns);
    list const& own = which < of_queries ? queries : keys;
    std::int64_t const first = (which < of_queries ? which : which - of_queries) * lanes * turns;
    for (int lane : group) {
      for (std::int64_t turn = 0; turn < turns; ++turn) {
        widen(own, first + turn * lanes + lane);
      }
    }
  }

 private:
  TESSERA_FN static void widen(list const& of, std::int64_t at) {
    if (at < of.pieces) {
      piece const pairs = of.pairs[at];
      of.codes[2 * at] = widen(pairs.words[0], pairs.words[1]);
      of.codes[2 * at + 1] = widen(pairs.words[2], pairs.words[3]);
    }
    if (at < of.scale_count) {
      of.scales_of_sixteenth[at] = of.scales[at] * (1.0F / 16.0F);
    }
  }
  TESSERA_FN static constexpr piece widen(std::uint32_t first, std::uint32_t second) {
    return {{four_of(first), four_of(first >> 16), four_of(second), four_of(second >> 16)}};
  }
  /// Four codes times 16 in bytes, from the lowest four of a word.
  TESSERA_FN static constexpr std::uint32_t four_of(std::uint32_t word) {
    std::uint32_t const even = (word & 0x0f0fU) << 4;
    std::uint32_t const odd = word & 0xf0f0U;
    return (even & 0xffU) | (odd & 0xffU) << 8 | (even & 0xff00U) << 8 | (odd & 0xff00U) << 16;
  }
};

}  // namespace v0
}  // namespace tessera
