// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What all levels have in common: the body of a matrix product, a loop over steps of its depth. A level says how large
/// a tile of c is, how a step's operands come to where they are multiplied, and what multiplies them.
///
///     sums = 0
///     for each step, when its operands are there:   sums += a b^T over the step's depth
///     c = sums
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/pipelined.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/tile_order.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_examples {

using namespace tessera;

/// c = a b^T: a rows x depth, b columns x depth, c rows x columns.
struct product {
  matrix_view<bfloat16 const> a;
  matrix_view<bfloat16 const> b;
  matrix_view<bfloat16> c;
};

/// The steps from 0 to count - 1. When the loop comes to a step, prepare(step) brings its operands, and says in which
/// stage of scratch they are. It is the loop of levels whose steps are not `pipelined`.
template <class Prepare>
class prepared_steps {
 public:
  TESSERA_FN prepared_steps(int count, Prepare const& prepare) : count_(count), prepare_(prepare) {}

  struct iterator {
    int index;
    Prepare const& prepare;
    TESSERA_FN pipeline_step operator*() const { return {index, prepare(index)}; }
    TESSERA_FN iterator& operator++() {
      ++index;
      return *this;
    }
    [[nodiscard]] TESSERA_FN bool operator!=(int count) const { return index < count; }
  };
  TESSERA_FN iterator begin() const { return {0, prepare_}; }
  TESSERA_FN int end() const { return count_; }

 private:
  int count_;
  Prepare const& prepare_;
};

/// Stages of tiles of both operands, in scratch.
template <int Rows, int Columns, int Depth, int Stages>
struct operand_stages {
  staged_tile<bfloat16, Rows, Depth> a[Stages];
  staged_tile<bfloat16, Columns, Depth> b[Stages];
};

/// A product whose tiles have so many rows and columns. Elements beyond the edges of c are left out.
template <int Rows, int Columns>
struct product_body {
  static constexpr int tile_rows = Rows, tile_columns = Columns;
  product of;

  [[nodiscard]] TESSERA_FN constexpr tile_order order() const {
    return {static_cast<std::int32_t>(divide_up(of.c.extent(0), std::int64_t{Rows})),
            static_cast<std::int32_t>(divide_up(of.c.extent(1), std::int64_t{Columns})), 8};
  }
  /// How many tiles there are, each of which a group of lanes takes.
  [[nodiscard]] std::int64_t groups() const { return order().count(); }

  /// The first row and column of a tile.
  struct corner {
    std::int64_t row;
    std::int64_t column;
  };
  /// That of tile number `which`.
  [[nodiscard]] TESSERA_FN constexpr corner at(std::int64_t which) const {
    tile_coordinate const coordinate = order().at(which);
    return {std::int64_t{coordinate.row} * Rows, std::int64_t{coordinate.column} * Columns};
  }
  /// How many steps of so many elements the depth has.
  [[nodiscard]] TESSERA_FN constexpr int steps(int depth) const {
    return static_cast<int>(divide_up(of.a.extent(1), std::int64_t{depth}));
  }

  /// The body. Tile: whose sums these are. multiply(step, sums) adds a step's product.
  template <class Tile, class Group, class Steps, class Multiply>
  TESSERA_FN void compute(Group const& group, corner first, Steps const& all_steps, Multiply const& multiply) const {
    typename Tile::sum_tile sums;
    Tile::clear(group, sums);
    for (pipeline_step const step : all_steps) {
      multiply(step, sums);
    }
    matrix_view<bfloat16> const c = of.c;
    Tile::each(group, sums, [=](int row, int column, float sum) {
      if (first.row + row < c.extent(0) && first.column + column < c.extent(1)) {
        c(first.row + row, first.column + column) = store<bfloat16>(sum);
      }
    });
  }
  /// The same over operand_stages, whose tiles a gemm_tile multiplies.
  template <class Tile, class Group, class Steps, class Stages>
  TESSERA_FN void compute_staged(Group const& group, corner first, Steps const& all_steps, Stages const& stages) const {
    compute<Tile>(group, first, all_steps, [&](pipeline_step step, typename Tile::sum_tile& sums) {
      multiply_staged<Tile>(group, stages.a[step.stage], stages.b[step.stage], sums);
    });
  }
};

}  // namespace tessera_examples
