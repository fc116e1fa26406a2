// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The other programs of a search for directions in rounds, without eigenvectors (see also
/// program/subspace/block_products.hpp and program/subspace/factor_blocks.hpp):
///
///     start_rounds       Y: numbers between -1 and 1; the trace of G
///     gram_images, twice, product_splits, factor_blocks, solve_blocks      Y = orthonormal columns of (G + m)^2 Y
///     ...
///     keep_directions    directions: Y rounded; for each row of G, the part that the directions hold
///     finish_rounds      the sum of these parts
///
/// There are as many columns as wanted directions. The search is for the span of the columns, not for eigenvectors: a
/// few more rounds take less time than one thread block needs for the eigenvectors of a 192 x 192 matrix.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/subspace/block_products.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Writes the columns with which rounds begin, and measures the trace. A group for each 8 rows; the first one measures.
struct start_rounds {
  static constexpr int lanes = 256;
  static constexpr std::int64_t rows = 8;  ///< rows of a group
  struct scratch_type {};

  matrix_view<float const> gram;  ///< width x width
  matrix_view<float> columns;     ///< the first directions: width x columns
  array_view<subspace_measures> measures;

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(columns.extent(0), rows); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const across = columns.extent(1);
    bool const is_square = columns.extent(0) == across;
    for (int lane : group) {
      for (std::int64_t at = lane; at < rows * across; at += lanes) {
        std::int64_t const row = which * rows + at / across;
        std::int64_t const k = at % across;
        if (row < columns.extent(0)) {
          auto const word = mix_bits(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(k));
          float const lot = static_cast<float>(word >> 40) * 0x1p-23F - 1.0F;
          columns(row, k) = is_square ? (row == k ? 1.0F : 0.0F) : lot;
        }
      }
    }
    if (which == 0) {
      measure(group);
    }
  }

 private:
  template <Group G>
  TESSERA_FN void measure(G const& group) const {
    per_lane<double, G> own;
    for (int lane : group) {
      own[lane] = 0.0;
      for (std::int64_t i = lane; i < gram.extent(0); i += lanes) {
        own[lane] += static_cast<double>(gram(i, i));
      }
    }
    double const trace = sum(group, own);
    auto const shift = static_cast<float>(trace * 1e-7);
    for (int lane : group) {
      if (is_first(lane)) {
        measures[0].trace = trace;
        measures[0].held = 0.0;
        measures[0].shift = shift > 0.0F ? shift : 1.0F;
      }
    }
  }
};

/// Computes target = source R^-1 from the results of factor_blocks. A group for each 8 rows, a lane for a row of a
/// block.
struct solve_blocks {
  static constexpr int lanes = 256;
  static constexpr int block = block_products::block;  ///< rows and columns of the factor's blocks
  static constexpr int rows = lanes / block;           ///< rows of a group
  static constexpr int most_columns = 192;             ///< the most columns of the source
  static constexpr int step = 16;                      ///< elements of the factor that a lane has in flight

  struct scratch_type {
    double solved[rows][most_columns];  ///< rows of the target
    double rest[rows][block];           ///< rows of the source, less the parts that earlier columns hold
  };

  matrix_view<double const> factor;  ///< the result of factor_blocks
  matrix_view<float const> source;   ///< rows x columns
  matrix_view<float> target;         ///< may be the source

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(source.extent(0), std::int64_t{rows}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    auto const panels = static_cast<int>(divide_up(source.extent(1), std::int64_t{block}));
    for (int panel = 0; panel < panels; ++panel) {
      for (int lane : group) {
        std::int64_t const row = which * rows + lane / block;
        std::int64_t const column = panel * block + lane % block;
        bool const is_inside = row < source.extent(0) && column < source.extent(1);
        double const own = is_inside ? static_cast<double>(source(row, column)) : 0.0;
        scratch.rest[lane / block][lane % block] =
            own - product(scratch.solved[lane / block], 0, column, panel * block);
      }
      group.sync();
      for (int lane : group) {
        std::int64_t const row = which * rows + lane / block;
        std::int64_t const column = panel * block + lane % block;
        double const value = product(scratch.rest[lane / block], panel * block, column, block);
        scratch.solved[lane / block][column] = value;
        if (row < target.extent(0) && column < target.extent(1)) {
          target(row, column) = static_cast<float>(value);
        }
      }
      group.sync();
    }
  }

 private:
  /// The product of `count` elements of a row with those of the factor's column, from row `first` on.
  TESSERA_FN double product(double const* row, std::int64_t first, std::int64_t column, int count) const {
    double total = 0.0;
    for (int k = 0; k < count; k += step) {
      double across[step];
      for (int i = 0; i < step; ++i) {
        across[i] = factor(first + k + i, column);
      }
      for (int i = 0; i < step; ++i) {
        total += row[k + i] * across[i];
      }
    }
    return total;
  }
};

/// Rounds directions, and computes the part of the keys that they hold. A group for each row.
template <class T>
struct keep_directions {
  static constexpr int lanes = 32;
  struct scratch_type {};

  matrix_view<float const> columns;  ///< orthonormal columns
  matrix_view<float const> images;   ///< gram * columns
  matrix_view<T> directions;         ///< width x rank
  array_view<double> held;           ///< the part that the directions hold, by row

  TESSERA_FN constexpr std::int64_t groups() const { return columns.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    per_lane<double, G> own;
    for (int lane : group) {
      own[lane] = 0.0;
      for (std::int64_t k = lane; k < columns.extent(1); k += lanes) {
        float const value = columns(which, k);
        own[lane] += static_cast<double>(value) * static_cast<double>(images(which, k));
        directions(which, k) = store<T>(value);
      }
    }
    double const total = sum(group, own);
    for (int lane : group) {
      if (is_first(lane)) {
        held[which] = total;
      }
    }
  }
};

/// Adds up the parts that the directions hold. One group.
struct finish_rounds {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<double const> held;  ///< the part that the directions hold, by row
  array_view<subspace_measures> measures;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    per_lane<double, G> own;
    for (int lane : group) {
      own[lane] = 0.0;
      for (std::int64_t i = lane; i < held.size(); i += lanes) {
        own[lane] += held[i];
      }
    }
    double const total = sum(group, own);
    for (int lane : group) {
      if (is_first(lane)) {
        measures[0].held = total;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
