// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dequantized`: the TileSource of a matrix of a Quantizer's codes, which are decoded on the way into the tile. So a
/// product of 8-bit weights and bf16 inputs needs the same program as one of bf16 weights.
///
///     using quantizer = symmetric_quantizer<8, 64>;                 // 64 columns share a scale
///     using source = dequantized<quantizer, bfloat16>;
///     source const weights{{}, codes, scales};                      // codes: rows x columns, scales: rows x groups
///     gemm_tiles<bfloat16, dense<bfloat16>, source, Epilogue> const program{{inputs}, weights, epilogue};
#pragma once

#include <cstdint>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Value: the type to which decoded codes are rounded. A new group begins with each row; a quantizer for whole tensors
/// has its parameters at params(0, 0).
template <Quantizer Q, Scalar Value>
struct dequantized {
  using value_type = Value;

  Q quantizer;                                        ///< the quantizer that made the codes
  matrix_view<typename Q::code_type const> codes;     ///< rows x columns
  matrix_view<typename Q::params_type const> params;  ///< rows x groups of a row

  TESSERA_FN constexpr std::int64_t rows() const { return codes.extent(0); }
  TESSERA_FN constexpr std::int64_t columns() const { return codes.extent(1); }

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
      return store<Value>(quantizer.decode(codes(row, column), params(0, 0)));
    } else {
      return store<Value>(quantizer.decode(codes(row, column), params(row, column / Q::group)));
    }
  }
};

}  // namespace v0
}  // namespace tessera
