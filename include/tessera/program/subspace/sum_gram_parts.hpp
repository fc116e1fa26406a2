// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `add_gram_parts`: adds the sums of parts of the tokens, in the layout of gram_schedule, to gram, part after part, on
/// both sides of the diagonal. A group for each 32 x 32 elements on or above the diagonal.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/subspace/key_product_schedule.hpp>
#include <tessera/tile/triangle.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

struct add_gram_parts {
  static constexpr int lanes = 256;
  static constexpr std::int32_t block = 32;  ///< rows and columns of a group
  struct scratch_type {
    float sums[block][block + 1];  ///< sums, to be transposed for the other side of the diagonal
  };

  gram_schedule schedule;         ///< the schedule of the sums
  array_view<float const> parts;  ///< the sums of the parts
  matrix_view<float> gram;        ///< width x width

  TESSERA_FN constexpr std::int64_t groups() const { return triangle_size(blocks()); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    triangle_coordinate const coordinate = coordinate_in_triangle(which, blocks());
    std::int32_t const first_row = coordinate.row * block;
    std::int32_t const first_column = coordinate.column * block;
    for (int lane : group) {
      for (std::int32_t at = lane; at < block * block; at += lanes) {
        std::int32_t const row = first_row + at / block;
        std::int32_t const column = first_column + at % block;
        float total = 0.0F;
        if (row <= column && column < schedule.width) {
          total = sum_of(row, column);
          gram(row, column) = total;
        }
        scratch.sums[at / block][at % block] = total;
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int32_t at = lane; at < block * block; at += lanes) {
        std::int32_t const row = first_row + at % block;
        std::int32_t const column = first_column + at / block;
        if (row < column && column < schedule.width) {
          gram(column, row) = scratch.sums[at % block][at / block];
        }
      }
    }
  }

 private:
  TESSERA_FN constexpr std::int64_t blocks() const {
    return divide_up(std::int64_t{schedule.width}, std::int64_t{block});
  }

  TESSERA_FN float sum_of(std::int32_t row, std::int32_t column) const {
    std::int64_t const first = schedule.element({row / schedule.tile, column / schedule.tile, 0, 0},
                                                row % schedule.tile, column % schedule.tile);
    std::int64_t const step = schedule.tiles() * schedule.tile_elements;
    float total = gram(row, column);
    for (std::int32_t part = 0; part < schedule.parts(); ++part) {
      total += parts[first + part * step];
    }
    return total;
  }
};

}  // namespace v0
}  // namespace tessera
