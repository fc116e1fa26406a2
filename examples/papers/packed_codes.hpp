// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `packed_codes`: a user's own TileSource, of codes of 2 or 4 bits, and `pack_codes`, the program that makes them.
/// Rows are in groups of 32 columns with a scale and a minimum in fp16. Code t of a word is field t / 4 of its byte t %
/// 4.
#pragma once

#include <cstdint>

#include <tessera/core/check.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/tile/source/byte_as_float.hpp>
#include <tessera/tile/store_values.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_examples {

using namespace tessera;

template <int Bits>
struct packed_codes {
  using value_type = bfloat16;
  using quantizer = asymmetric_half_quantizer<Bits, 32>;
  using params_type = typename quantizer::params_type;
  static constexpr int in_word = 32 / Bits;
  matrix_view<std::uint32_t> words;  ///< rows x columns / in_word
  matrix_view<params_type> params;   ///< rows x columns / 32

  TESSERA_FN std::int64_t rows() const { return words.extent(0); }
  TESSERA_FN std::int64_t columns() const { return words.extent(1) * in_word; }
  /// `first_column` is a multiple of a word's codes.
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    for (int lane : group) {
      for (int i = lane * in_word; i < Tile::rows * Tile::columns; i += G::size * in_word) {
        std::int64_t const row = first_row + i / Tile::columns;
        std::int64_t const column = first_column + i % Tile::columns;
        bool const is_inside = row < rows() && column < columns();
        std::uint32_t const word = is_inside ? words(row, column / in_word) : 0U;
        params_type const of_group = is_inside ? params(row, column / 32) : params_type{};
        for (int first = 0; first < in_word; first += 8) {
          float values[8];
          for (int t = 0; t < 8; ++t) {
            std::uint32_t const fields = (word >> ((first + t) / 4 * Bits)) & (quantizer::highest * 0x01010101U);
            values[t] = quantizer{}.decode_whole(byte_as_float(group, fields, t % 4) - 0x1p23F, of_group);
          }
          store_values<bfloat16>(group, values, is_inside, tile.chunk(i / Tile::columns, i % Tile::columns + first));
        }
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

/// Makes codes, one group of 32 columns for each lane.
template <int Bits>
struct pack_codes {
  using codes = packed_codes<Bits>;
  static constexpr int lanes = 32;
  struct scratch_type {};
  view<bfloat16 const, 3> values;  ///< head x row x column, of any strides; columns are a multiple of 32
  packed_heads<Bits> to;
  [[nodiscard]] std::int64_t groups() const { return divide_up(to.params.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      if (std::int64_t const i = which * lanes + lane; i < to.params.size()) {
        std::int64_t const row = i / to.params.extent(2);
        pack(values[row / values.extent(1)][row % values.extent(1)], to[row / values.extent(1)], row % values.extent(1),
             i % to.params.extent(2));
      }
    }
  }

 private:
  TESSERA_FN static void pack(array_view<bfloat16 const> from, codes const& into, std::int64_t row, std::int64_t part) {
    typename codes::quantizer const by_group;
    auto range = by_group.range().identity();
    for (int t = 0; t < 32; ++t) {
      by_group.range().push(range, load(from[32 * part + t]));
    }
    auto const params = into.params(row, part) = by_group.fit(range);
    for (int word = 0; word < Bits; ++word) {
      std::uint32_t packed = 0;
      for (int t = 0; t < codes::in_word; ++t) {
        float const value = load(from[32 * part + word * codes::in_word + t]);
        packed |= std::uint32_t{by_group.encode(value, params)} << (t % 4 * 8 + t / 4 * Bits);
      }
      into.words(row, part * Bits + word) = packed;
    }
  }
};

/// Codes of matrices in an executor's memory.
template <int Bits>
struct packed_memory {
  buffer<std::uint32_t> words;
  buffer<typename packed_codes<Bits>::params_type> params;
  packed_heads<Bits> heads;  ///< views of both

  /// Makes them. `values`: head x row x column, of any strides; columns are a multiple of 32.
  template <class Executor>
  packed_memory(Executor const& exec, view<bfloat16 const, 3> values)
      : words(exec, values.size() * Bits / 32),
        params(exec, values.size() / 32),
        heads{{words.data(), {values.extent(0), values.extent(1), values.extent(2) * Bits / 32}},
              {params.data(), {values.extent(0), values.extent(1), values.extent(2) / 32}}} {
    check<shape_error>(values.extent(2) % 32 == 0, "packed_memory: there are ", values.extent(2),
                       " columns but must be a multiple of 32");
    pack_codes<Bits> const pack{values, heads};
    exec.run(pack, pack.groups());
  }
};

}  // namespace tessera_examples
