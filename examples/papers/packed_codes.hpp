// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `packed_codes`: a user's own TileSource, of codes of 2 or 4 bits, which `pack_codes` (pack_codes.hpp) makes. Rows
/// are in groups of 32 columns.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/view/matrix_view.hpp>

#include "packed_group.hpp"

namespace tessera_examples {

template <int Bits>
struct packed_codes {
  using value_type = bfloat16;
  using group_type = packed_group<Bits>;
  using quantizer = typename group_type::quantizer;
  using params_type = typename group_type::params_type;
  static constexpr int in_word = group_type::in_word;
  matrix_view<std::uint32_t> words;  ///< rows x columns / in_word, contiguous
  matrix_view<params_type> params;   ///< rows x columns / 32

  TESSERA_FN std::int64_t rows() const { return words.extent(0); }
  TESSERA_FN std::int64_t columns() const { return words.extent(1) * in_word; }
  /// `first_column` is a multiple of 32. A lane's codes are all on their way before it decodes the first.
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    constexpr int in_row = Tile::columns / 32, of_lane = divide_up(Tile::rows * in_row, G::size);
    for (int lane : group) {
      group_type found[of_lane];
      params_type of_group[of_lane];
      for (int i = 0; i < of_lane; ++i) {
        std::int64_t const row = first_row + (lane + i * G::size) / in_row;
        std::int64_t const column = first_column + (lane + i * G::size) % in_row * 32;
        bool const is_inside = row < rows() && column < columns();
        found[i] = is_inside ? *reinterpret_cast<group_type const*>(&words(row, column / in_word)) : group_type{};
        of_group[i] = is_inside ? params(row, column / 32) : params_type{};  // decodes 0 to 0
      }
      for (int i = 0; i < of_lane && lane + i * G::size < Tile::rows * in_row; ++i) {
        int const row = (lane + i * G::size) / in_row, column = (lane + i * G::size) % in_row * 32;
        auto const chunk = [&](int which) -> auto& {
          return tile.chunk(row, column + 8 * which);
        };
        found[i].decode(group, of_group[i], chunk);
      }
    }
    group.sync();
  }
};

/// Codes of several matrices, such as those of heads.
template <int Bits>
struct packed_heads {
  view<std::uint32_t, 3> words;                              ///< head x row x word
  view<typename packed_codes<Bits>::params_type, 3> params;  ///< head x row x group
  TESSERA_FN packed_codes<Bits> operator[](std::int64_t head) const { return {words[head], params[head]}; }
};

}  // namespace tessera_examples
