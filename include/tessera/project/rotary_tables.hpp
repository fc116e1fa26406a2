// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The tables of a rotary embedding, made in double on the host.
///
///     tessera::rotary_tables const tables(tessera::rotary_frequencies(10000.0, 128), 131072);
///     auto const rotary = tables.embedding(tessera::rotary_pairs::halves);      // for executors on the host
///     exec.copy(tables.within(), within);                       // for others: copies, and their views
///     exec.copy(tables.blocks(), blocks);
///     auto const there = tables.embedding(tessera::rotary_pairs::halves, within.data(), blocks.data());
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/project/rotary.hpp>

namespace tessera {
inline namespace v0 {

/// The frequencies base^(-2 i / turning) of pairs i, in radians a position. Throws value_error unless the base is
/// positive and finite.
[[nodiscard]] inline std::vector<double> rotary_frequencies(double base, int turning) {
  check<value_error>(std::isfinite(base) && base > 0, "rotary_frequencies: the base is ", base,
                     " but must be positive and finite");
  std::vector<double> frequencies;
  for (int i = 0; 2 * i < turning; ++i) {
    frequencies.push_back(std::pow(base, -2.0 * i / turning));
  }
  return frequencies;
}

/// Owns the tables of an embedding, in memory of the host. For a device copy both, and make an embedding of the copies.
class rotary_tables {
 public:
  /// `frequencies`: one for each pair, in radians a position. `amplitude`: the factor of all rotations, 1 but for YaRN.
  /// Throws value_error where one of them is not finite.
  rotary_tables(std::vector<double> const& frequencies, std::int64_t positions, double amplitude = 1.0)
      : pairs_(static_cast<std::int64_t>(frequencies.size())),
        block_count_(divide_up(max(positions, std::int64_t{1}), rotary_embedding::block)) {
    check<shape_error>(positions >= 0, "rotary_tables: there are ", positions,
                       " positions but that must not be negative");
    check<value_error>(std::isfinite(amplitude), "rotary_tables: the amplitude is ", amplitude, " but must be finite");
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      check<value_error>(std::isfinite(frequencies[i]), "rotary_tables: the frequency of pair ", i, " is ",
                         frequencies[i], " but must be finite");
    }
    fill(within_, frequencies, rotary_embedding::block, 1, 1.0);
    fill(blocks_, frequencies, block_count_, rotary_embedding::block, amplitude);
  }

  /// Rotations of the positions of a block: `rotary_embedding::block` x pairs, row after row.
  [[nodiscard]] std::vector<rotation> const& within() const { return within_; }
  /// Rotations of the first position of each block: blocks x pairs, row after row.
  [[nodiscard]] std::vector<rotation> const& blocks() const { return blocks_; }

  /// The embedding that views these tables.
  [[nodiscard]] rotary_embedding embedding(rotary_pairs pairs) const {
    return embedding(pairs, within_.data(), blocks_.data());
  }
  /// The embedding that views copies of within() and blocks(), say on a device.
  [[nodiscard]] rotary_embedding embedding(rotary_pairs pairs, rotation const* within, rotation const* blocks) const {
    rotary_embedding const made{{within, {rotary_embedding::block, pairs_}}, {blocks, {block_count_, pairs_}}, pairs};
    check_memory("rotary_tables.embedding", "angles of positions", made.within);
    check_memory("rotary_tables.embedding", "angles of blocks", made.blocks);
    return made;
  }

 private:
  static void fill(std::vector<rotation>& table, std::vector<double> const& frequencies, std::int64_t count,
                   std::int64_t step, double amplitude) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (double const frequency : frequencies) {
        double const angle = frequency * static_cast<double>(i * step);
        table.push_back(
            {static_cast<float>(amplitude * std::cos(angle)), static_cast<float>(amplitude * std::sin(angle))});
      }
    }
  }

  std::int64_t pairs_;
  std::int64_t block_count_;
  std::vector<rotation> within_;
  std::vector<rotation> blocks_;
};

}  // namespace v0
}  // namespace tessera
