// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `encode_chunks`: the codes of a matrix in memory by parameters that are there.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/gemm/detail/row_encoder.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Encodes by parameters that are there. A lane encodes up to 4 chunks of a row.
template <Quantizer Q, Scalar T>
struct encode_chunks {
  static constexpr int lanes = 128;
  struct scratch_type {};
  static constexpr int part_columns = row_encoder<Q, T>::columns;  ///< columns whose codes make a chunk
  static constexpr int tile_columns = 4 * lanes * part_columns;    ///< columns of a tile, which has one row

  row_encoder<Q, T> encoder;                          ///< the values, and where their codes go
  matrix_view<typename Q::params_type const> params;  ///< rows x groups of a row, or 1 x 1 for a whole tensor

  TESSERA_FN constexpr std::int64_t groups() const { return encoder.values.extent(0) * tiles_in_row(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const row = which / tiles_in_row();
    std::int64_t const first = which % tiles_in_row() * tile_columns;
    std::int64_t const end = min(first + tile_columns, encoder.values.extent(1));
    for (int lane : group) {
      for (std::int64_t column = first + lane * part_columns; column < end; column += lanes * part_columns) {
        encode(row, column, min(column + part_columns, end));
      }
    }
  }

 private:
  TESSERA_FN constexpr std::int64_t tiles_in_row() const {
    return divide_up(encoder.values.extent(1), std::int64_t{tile_columns});
  }
  /// Encodes a chunk, in parts where groups end inside of it.
  TESSERA_FN void encode(std::int64_t row, std::int64_t first, std::int64_t end) const {
    if constexpr (std::is_empty_v<typename Q::params_type>) {
      encode_part(row, first, end, {});
    } else if constexpr (Q::group == whole_tensor) {
      encode_part(row, first, end, params(0, 0));
    } else if constexpr (Q::group % part_columns == 0) {
      encode_part(row, first, end, params(row, first / Q::group));
    } else {
      while (first < end) {
        std::int64_t const group_end = min((first / Q::group + 1) * Q::group, end);
        encode_part(row, first, group_end, params(row, first / Q::group));
        first = group_end;
      }
    }
  }
  TESSERA_FN void encode_part(std::int64_t row, std::int64_t first, std::int64_t end,
                              typename Q::params_type const& of_group) const {
    encoder.store(row, first, end, encoder.encode(encoder.load(row, first, end), of_group));
  }
};

}  // namespace v0
}  // namespace tessera
