// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dequantized`: the TileSource of a matrix of a Quantizer's codes, which are decoded on the way into the tile. So a
/// product of 8-bit weights and bf16 inputs needs the same program as one of bf16 weights.
///
///     using quantizer = symmetric_quantizer<8, 64>;                 // 64 columns share a scale
///     using source = dequantized<quantizer, bfloat16>;
///     source const weights{{}, codes, scales};                      // codes: rows x columns, scales: rows x groups
///     gemm_tiles<bfloat16, dense<bfloat16>, source, Epilogue> const program{{inputs}, weights, epilogue};
///
/// Codes of 4 bits take half of a byte where the quantizer says so (quantize/two_to_a_byte.hpp):
///
///     using packed = dequantized<two_to_a_byte<symmetric_quantizer<4, 64>>, bfloat16>;
///     packed const weights{{}, pairs, scales};                      // pairs: rows x columns / 2, of int4x2
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Value: the type to which decoded codes are rounded. A new group begins with each row; a quantizer for whole tensors
/// has its parameters at params(0, 0).
template <Quantizer Q, Scalar Value>
struct dequantized {
  using value_type = Value;
  /// Whether an element of `codes` holds two codes of a row, the first in the low bits. Rows are then of even length.
  static constexpr bool is_packed = std::is_same_v<stored_code<Q>, int4x2>;

  Q quantizer;                                        ///< the quantizer that made the codes
  matrix_view<stored_code<Q> const> codes;            ///< rows x columns, or x columns / 2 where they are packed
  matrix_view<typename Q::params_type const> params;  ///< rows x groups of a row

  TESSERA_FN constexpr std::int64_t rows() const { return codes.extent(0); }
  TESSERA_FN constexpr std::int64_t columns() const { return codes.extent(1) * (is_packed ? 2 : 1); }

  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += G::size) {
        std::int64_t const row = first_row + i / Tile::columns;
        std::int64_t const column = first_column + i % Tile::columns;
        bool const is_inside = row >= 0 && row < rows() && column >= 0 && column < columns();
        tile(i / Tile::columns, i % Tile::columns) = is_inside ? value(row, column) : Value{};
      }
    }
    group.sync();
  }

 private:
  TESSERA_FN constexpr Value value(std::int64_t row, std::int64_t column) const {
    if constexpr (Q::group == whole_tensor) {
      return store<Value>(quantizer.decode(code(row, column), params(0, 0)));
    } else {
      return store<Value>(quantizer.decode(code(row, column), params(row, column / Q::group)));
    }
  }

  TESSERA_FN constexpr typename Q::code_type code(std::int64_t row, std::int64_t column) const {
    if constexpr (is_packed) {
      int4x2 const pair = codes(row, column / 2);
      int const code = column % 2 == 0 ? low(pair) : high(pair);
      return static_cast<typename Q::code_type>(std::is_unsigned_v<typename Q::code_type> ? code & 15 : code);
    } else {
      return codes(row, column);
    }
  }
};

}  // namespace v0
}  // namespace tessera
