// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Rotary position embeddings: pairs of channels are rotated by an angle that grows with the position of the token.
///
///     tessera::rotary_tables const tables(tessera::rotary_frequencies(10000.0, 128), 131072);   // on the host, once
///     auto const rotary = tables.embedding(tessera::rotary_pairs::halves);                       // views, by value
///     float const turned = rotary.turn(position, channel, keys);                                 // keys(channel)
///
/// Models differ in which channels are a pair (the halves of a head, or neighbours), in how many channels are rotated
/// (the first ones), and in the frequencies; scaled embeddings (Llama 3.1, YaRN with its amplitude) only have other
/// numbers.
///
/// There are two tables (project/rotary_tables.hpp makes them): one for positions within a block of 256, and one for
/// the beginnings of blocks. Their angles add up. They take 400 KB instead of 64 MB for 128K positions of 64 pairs, so
/// that they stay in a GPU's cache. A caller with a table of all positions passes that instead. The results are the
/// same bits on every executor; the angle's error is below 2e-7.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The rotation of a pair of channels, times an amplitude, which is 1 but for YaRN.
struct rotation {
  float cosine;  ///< cosine of the angle times the amplitude
  float sine;    ///< sine of the angle times the amplitude
};

/// Which of n rotated channels are a pair: i and i + n / 2, or 2 i and 2 i + 1.
enum class rotary_pairs : std::uint8_t { halves, neighbours };

/// The angles by which channels are rotated at each position: views of tables that others own
/// (project/rotary_tables.hpp).
struct rotary_embedding {
  static constexpr std::int64_t block = 256;  ///< positions of a block

  matrix_view<rotation const> within = {};    ///< positions of a block x pairs; without `blocks`: all positions x pairs
  matrix_view<rotation const> blocks = {};    ///< blocks x pairs, or null
  rotary_pairs pairs = rotary_pairs::halves;  ///< which channels are a pair

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("angles of positions", within);
    use("angles of blocks", blocks);
  }
  /// How many channels are rotated; others stay as they are. 0 for a model without rotations.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t channels() const { return 2 * within.extent(1); }
  /// How many positions have angles.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t positions() const {
    return blocks.data == nullptr ? within.extent(0) : blocks.extent(0) * block;
  }

  /// The rotation of one pair of channels at a position below positions(): a product of two table entries.
  [[nodiscard]] TESSERA_FN rotation at(std::int64_t position, std::int64_t pair) const {
    if (blocks.data == nullptr) {
      return within(position, pair);
    }
    return both(blocks(position / block, pair), within(position % block, pair));
  }
  /// The product of two rotations.
  [[nodiscard]] TESSERA_FN static rotation both(rotation const& a, rotation const& b) {
    return {multiply_add(-a.sine, b.sine, a.cosine * b.cosine), multiply_add(a.cosine, b.sine, a.sine * b.cosine)};
  }

  /// A channel of `source`, any function of a channel, after the rotation.
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
