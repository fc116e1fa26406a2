// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `factor_blocks`: Cholesky's factor R of products W = R^T R, above its diagonal blocks of 32 x 32, and the inverses
/// of these blocks. From them solve_blocks (program/subspace/iterate_in_blocks.hpp) makes columns orthonormal.
///
/// One group computes all of it, in double and in scratch. For each row of blocks it eliminates the diagonal block, a
/// step for each of the block's rows. Then it solves for the other blocks of the row and for the inverse, a lane for
/// each column. Then it updates all blocks below. Scratch: 8 KiB for each block on or above the diagonal, of which 160
/// columns (`Blocks` = 5) have 15 and 192 have 21.
///
/// 160 columns take an H200 61 us, most of it waiting for one value after the other: about 9 to load products, 21 to
/// eliminate, 12 to solve, 17 to update. Issuing all loads of a lane before the first wait saved 27.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/subspace/block_products.hpp>
#include <tessera/tile/triangle.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

template <int Blocks>
struct factor_blocks {
  static constexpr int lanes = 256;
  static constexpr int block = block_products::block;  ///< rows and columns of a block
  static constexpr int size = Blocks * block;          ///< the most columns
  static_assert(Blocks >= 1 && size <= lanes, "tessera: a lane for each column");

  struct scratch_type {
    double blocks[triangle_size(Blocks)][block][block];  ///< products, then the factor
    double inverse[block][block];                        ///< the inverse, transposed
    double whole[size];                                  ///< elements on the diagonal before elimination
    double roots[block];                                 ///< one over the elements on the factor's diagonal
    double kept[block];                                  ///< the same, or 0 for a row in which only rounding is left
  };

  view<double const, 3> splits;  ///< the products, from product_splits
  std::int64_t columns;          ///< number of columns; those beyond it count as orthonormal
  /// Whole blocks: R above the diagonal blocks, the inverses on the diagonal; below it nothing is written.
  matrix_view<double> factor;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    auto const used = static_cast<int>(divide_up(columns, std::int64_t{block}));
    load(group, used, scratch);
    for (int p = 0; p < used; ++p) {
      eliminate(group, p, scratch);
      finish_rows(group, p, scratch);
      solve(group, p, used - 1 - p, scratch);
      update(group, p, used - 1 - p, scratch);
      write(group, p, used, scratch);
    }
  }

 private:
  using block_type = double[block][block];

  TESSERA_FN static constexpr int index(int row, int column) {
    return static_cast<int>(index_in_triangle(row, column, Blocks));
  }

  /// Elements of a block that a lane has; it issues the loads of all before it waits for the first.
  static constexpr int elements = block * block / lanes;

  template <Group G>
  TESSERA_FN void load(G const& group, int used, scratch_type& scratch) const {
    for (int lane : group) {
      for (int row = 0; row < used; ++row) {
        for (int column = row; column < used; ++column) {
          double own[elements];
          for (int n = 0; n < elements; ++n) {
            int const i = row * block + (lane + n * lanes) / block;
            int const j = column * block + (lane + n * lanes) % block;
            bool const is_there = i < columns && j < columns;
            double const sum = sum_of(is_there ? i : 0, is_there ? j : 0);
            own[n] = is_there ? sum : (i == j ? 1.0 : 0.0);
          }
          for (int n = 0; n < elements; ++n) {
            int const at = lane + n * lanes;
            scratch.blocks[index(row, column)][at / block][at % block] = own[n];
            if (row == column && at / block == at % block) {
              scratch.whole[row * block + at % block] = own[n];
            }
          }
        }
      }
    }
    group.sync();
  }

  TESSERA_FN double sum_of(int i, int j) const {
    double sum = splits(0, i, j);
    for (int split = 1; split < product_splits::splits; ++split) {
      sum += splits(split, i, j);
    }
    return sum;
  }

  /// Eliminates the diagonal block; its rows are not yet divided by their roots.
  template <Group G>
  TESSERA_FN static void eliminate(G const& group, int p, scratch_type& scratch) {
    block_type& d = scratch.blocks[index(p, p)];
    for (int k = 0; k + 1 < block; ++k) {
      for (int lane : group) {
        int const j = lane % block;
        double above[elements];
        double own[elements];
        for (int n = 0; n < elements; ++n) {
          int const i = lane / block + n * (lanes / block);
          above[n] = d[k][i];
          own[n] = d[i][j];
        }
        double const pivot = d[k][k];
        double const factor = d[k][j] * (is_rounding(scratch, p, k) ? 0.0 : 1.0 / pivot);
        for (int n = 0; n < elements; ++n) {
          int const i = lane / block + n * (lanes / block);
          if (i > k && j >= i) {
            d[i][j] = own[n] - above[n] * factor;
          }
        }
      }
      group.sync();
    }
  }

  /// Whether the columns before account for all of this one, but for rounding. Then nothing is subtracted for it from
  /// later columns, and solve_blocks makes a short vector of random direction of it, with which the next round begins.
  /// False for NaNs.
  TESSERA_FN static bool is_rounding(scratch_type const& scratch, int p, int k) {
    return scratch.blocks[index(p, p)][k][k] <= 1e-14 * scratch.whole[p * block + k];
  }

  template <Group G>
  TESSERA_FN static void finish_rows(G const& group, int p, scratch_type& scratch) {
    block_type& d = scratch.blocks[index(p, p)];
    for (int lane : group) {
      if (lane < block) {
        bool const rounding = is_rounding(scratch, p, lane);
        double const square = rounding ? scratch.whole[p * block + lane] : d[lane][lane];
        scratch.roots[lane] = square > 0.0 || !rounding ? 1.0 / ::sqrt(square) : 1.0;
        scratch.kept[lane] = rounding ? 0.0 : scratch.roots[lane];
      }
    }
    group.sync();
    for (int lane : group) {
      for (int at = lane; at < block * block; at += lanes) {
        d[at / block][at % block] *= scratch.kept[at / block];
        scratch.inverse[at / block][at % block] = at / block == at % block ? 1.0 : 0.0;
      }
    }
    group.sync();
  }

  /// Solves R_pp^T x = a by forward substitution, eight rows in registers at a time, for the other blocks of the row
  /// and for the unit matrix.
  template <Group G>
  TESSERA_FN static void solve(G const& group, int p, int others, scratch_type& scratch) {
    for (int lane : group) {
      if (lane < (others + 1) * block) {
        int const which = lane / block;
        if (which < others) {
          solve_column(scratch.blocks[index(p, p)], scratch.kept, scratch.blocks[index(p, p + 1 + which)],
                       lane % block);
        } else {
          solve_column(scratch.blocks[index(p, p)], scratch.roots, scratch.inverse, lane % block);
        }
      }
    }
    group.sync();
  }

  TESSERA_FN static void solve_column(block_type const& d, double const (&roots)[block], block_type& x, int column) {
    constexpr int rows = 8;
    for (int first = 0; first < block; first += rows) {
      double own[rows];
      for (int i = 0; i < rows; ++i) {
        own[i] = x[first + i][column];
      }
      for (int k = 0; k < first; ++k) {
        double const known = x[k][column];
        for (int i = 0; i < rows; ++i) {
          own[i] -= d[k][first + i] * known;
        }
      }
      for (int i = 0; i < rows; ++i) {
        own[i] *= roots[first + i];
        for (int j = 0; j < rows; ++j) {
          own[j] -= j > i ? d[first + i][first + j] * own[i] : 0.0;
        }
      }
      for (int i = 0; i < rows; ++i) {
        x[first + i][column] = own[i];
      }
    }
  }

  /// Subtracts from the blocks below what row p of blocks accounts for. Four blocks at a time, 4 x 4 elements a lane.
  template <Group G>
  TESSERA_FN static void update(G const& group, int p, int left, scratch_type& scratch) {
    auto const count = static_cast<int>(triangle_size(left));
    for (int lane : group) {
      for (int at = lane / 64; at < count; at += lanes / 64) {
        triangle_coordinate const coordinate = coordinate_in_triangle(at, left);
        int const i = p + 1 + coordinate.row;
        int const j = p + 1 + coordinate.column;
        subtract(scratch.blocks[index(p, i)], scratch.blocks[index(p, j)], scratch.blocks[index(i, j)],
                 lane % 64 / 8 * 4, lane % 8 * 4);
      }
    }
    group.sync();
  }

  TESSERA_FN static void subtract(block_type const& a, block_type const& b, block_type& from, int row, int column) {
    double sums[16] = {};
    for (int k = 0; k < block; ++k) {
      for (int i = 0; i < 16; ++i) {
        sums[i] += a[k][row + i / 4] * b[k][column + i % 4];
      }
    }
    for (int i = 0; i < 16; ++i) {
      from[row + i / 4][column + i % 4] -= sums[i];
    }
  }

  template <Group G>
  TESSERA_FN void write(G const& group, int p, int used, scratch_type& scratch) const {
    for (int lane : group) {
      for (int at = lane; at < block * block; at += lanes) {
        int const i = at / block;
        int const j = at % block;
        factor(p * block + i, p * block + j) = scratch.inverse[j][i];
        for (int column = p + 1; column < used; ++column) {
          factor(p * block + i, column * block + j) = scratch.blocks[index(p, column)][i][j];
        }
      }
    }
    group.sync();  // all lanes have read the inverse
  }
};

}  // namespace v0
}  // namespace tessera
