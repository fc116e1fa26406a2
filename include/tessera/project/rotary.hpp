// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Rotary position embeddings: pairs of channels turned by an angle that grows with the position of the token.
///
///     tessera::rotary_tables const tables(tessera::rotary_frequencies(10000.0, 128), 131072);   // on the host, once
///     auto const rotary = tables.embedding(tessera::rotary_pairs::halves);                       // views, by value
///     float const turned = rotary.turn(position, channel, keys);                                 // keys(channel)
///
/// Models differ in which channels are a pair (the halves of a head, or neighbours), in how many channels turn at all
/// (the first ones), and in the frequencies; scaled ones (Llama 3.1, YaRN with its amplitude) are only other numbers.
///
/// The tables (project/rotary_tables.hpp makes them) are two: for positions within a block of 256, and for the
/// beginnings of blocks, whose angles add up: 400 KB instead of 64 MB for 128K positions of 64 pairs, so that they stay
/// in a GPU's cache. A caller with a table of all positions passes that instead. The same bits on every executor; the
/// angle's error is below 2e-7.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// A turn of a pair of channels; as long as its amplitude, 1 but for YaRN.
struct rotation {
  float cosine;  ///< times the amplitude
  float sine;    ///< times the amplitude
};

/// Which channels are a pair, of n that turn: i and i + n / 2, or 2 i and 2 i + 1.
enum class rotary_pairs : std::uint8_t { halves, neighbours };

/// The angles by which channels turn at each position: views of tables that others own (project/rotary_tables.hpp).
struct rotary_embedding {
  static constexpr std::int64_t block = 256;  ///< positions

  matrix_view<rotation const> within = {};    ///< positions of a block x pairs; without `blocks`: of all positions
  matrix_view<rotation const> blocks = {};    ///< blocks x pairs, or null
  rotary_pairs pairs = rotary_pairs::halves;  ///< which channels turn together

  /// Channels that turn; others stay as they are. 0 for a model without rotations.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t channels() const { return 2 * within.extent(1); }
  /// Positions that there are angles for.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t positions() const {
    return blocks.data == nullptr ? within.extent(0) : blocks.extent(0) * block;
  }

  /// The turn of one pair of channels at a position below positions(), a product of two table entries.
  [[nodiscard]] TESSERA_FN rotation at(std::int64_t position, std::int64_t pair) const {
    if (blocks.data == nullptr) {
      return within(position, pair);
    }
    return both(blocks(position / block, pair), within(position % block, pair));
  }
  /// One turn after the other.
  [[nodiscard]] TESSERA_FN static rotation both(rotation const& a, rotation const& b) {
    return {multiply_add(-a.sine, b.sine, a.cosine * b.cosine), multiply_add(a.cosine, b.sine, a.sine * b.cosine)};
  }

  /// A channel of `source`, any function of a channel, after the turn.
  template <class Source>
  [[nodiscard]] TESSERA_FN float turn(std::int64_t position, std::int64_t channel, Source const& source) const {
    std::int64_t const turning = channels();
    if (channel >= turning) {
      return source(channel);
    }
    bool const has_halves = pairs == rotary_pairs::halves;
    std::int64_t const half = turning / 2;
    bool const is_first = has_halves ? channel < half : channel % 2 == 0;
    std::int64_t const apart = has_halves ? half : 1;
    rotation const by = at(position, has_halves ? (is_first ? channel : channel - half) : channel / 2);
    float const own = source(channel);
    float const other = source(is_first ? channel + apart : channel - apart);
    return multiply_add(own, by.cosine, (is_first ? -other : other) * by.sine);
  }
};

}  // namespace v0
}  // namespace tessera
