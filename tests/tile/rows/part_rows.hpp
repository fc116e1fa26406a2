// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A program that merges parts of rows by lanes, which all models must give the same rows with, up to rounding.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/row_parts.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/rows/lane_rows.hpp>
#include <tessera/tile/rows/settle_parts.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

using namespace tessera;

using split_part = row_part<online_softmax<float>::state_type, 1>;
using split_reducer = part_reducer<online_softmax<float>, split_part>;

/// The model of plain arrays and of a warp.
template <class Value, int Rows, int Columns>
struct lane_words {
  template <class G>
  using of = lane_rows<Value, Rows, Columns, G>;
};

/// Merges the first `count` parts of each row in two ways: all at once, and those of each lane, which a lane merges in
/// order, in the end.
template <int Rows, int Columns>
struct part_rows_program {
  static constexpr int lanes = 32;
  struct scratch_type {};
  matrix_view<split_part const> parts;  ///< Rows x Columns
  int count;
  array_view<split_part> settled;  ///< of each row
  array_view<split_part> merged;   ///< of each row
  matrix_view<float> factors;      ///< Rows x Columns
  matrix_view<float> given;        ///< Rows x Columns: the same by at()

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    using words = lane_rows<split_part, Rows, Columns, G>;
    using floats = lane_rows<float, Rows, Columns, G>;
    split_reducer const reducer;
    typename words::sum_tile tile;
    words::each_with_row(group, tile, [&, this](int row, int column, split_part& one) {
      one = column < count ? parts(row, column) : reducer.identity();
    });
    typename floats::sum_tile by;
    typename words::template row_values<split_part> wholes;
    settle_parts<words, floats>(group, reducer, tile, by, wholes);
    words::each_row_once(
        group, [&, this](int row, split_part const& whole) { settled[row] = whole; }, wholes);
    floats::each_with_row(group, by, [&, this](int row, int column, float& factor) { factors(row, column) = factor; });
    for (int row = 0; row < Rows; ++row) {
      for (int block = 0; block < Columns; block += 32) {
        for (int i = 0; i < 32 && block + i < Columns; ++i) {
          float const factor = floats::at(group, by, row, block, i);
          for (int lane : group) {
            if (lane == (7 * i + row) % 32) {
              given(row, block + i) = factor;
            }
          }
        }
      }
    }
    typename words::template row_values<split_part> gathered;
    words::fold_lanes(group, reducer, tile, gathered);
    merge_part_lanes<words>(group, reducer, gathered);
    words::each_row_once(
        group, [&, this](int row, split_part const& whole) { merged[row] = whole; }, gathered);
  }
};

/// Parts of rows: of usual scores, far apart, hidden in part and altogether, infinite, and with a NaN.
template <int Rows, int Columns>
std::vector<split_part> part_rows() {
  std::vector<split_part> made;
  for (std::uint64_t row = 0; row < Rows; ++row) {
    for (std::uint64_t column = 0; column < Columns; ++column) {
      float const spread = row % 2 == 0 ? 2.0F : 40.0F;
      float const score = spread * testing::gauss().value(row, column);
      split_part one{{score, score - static_cast<float>(column % 3), 1.0F + 0.01F * static_cast<float>(column)},
                     {testing::gauss().value(row + 100, column)}};
      if ((row == 1 && column % 3 != 1) || row == 2) {
        one = split_reducer{}.identity();
      } else if (row == 3 && column == 5) {
        one.values[0] = std::numeric_limits<float>::quiet_NaN();
      } else if (row == 4 && column == 6) {
        one.state.largest = one.state.reference = infinity;
      }
      made.push_back(one);
    }
  }
  return made;
}

struct part_rows_outcome {
  std::vector<split_part> settled;
  std::vector<split_part> merged;
  std::vector<float> factors;
  std::vector<float> given;

  part_rows_outcome(std::size_t rows, std::size_t columns)
      : settled(rows, {{-7, -7, -7}, {-7}}),
        merged(rows, {{-7, -7, -7}, {-7}}),
        factors(rows * columns, -7),
        given(rows * columns, -7) {}
};

/// What is wrong with an outcome; empty if nothing is.
template <int Rows, int Columns>
std::string wrong_parts(std::vector<split_part> const& parts, int count, part_rows_outcome const& found) {
  std::string wrong;
  auto const is_near = [](float a, double b) {
    return static_cast<double>(a) == b || (std::isnan(a) && std::isnan(b)) ||
           std::fabs(static_cast<double>(a) - b) <= 1e-5 * (1e-3 + std::fabs(b));
  };
  for (std::size_t row = 0; row < Rows; ++row) {
    std::string const name = " of row " + std::to_string(row) + " of " + std::to_string(count) + " parts; ";
    split_part const* const of_row = parts.data() + row * Columns;
    auto const all = static_cast<std::size_t>(count);
    double reference = -std::numeric_limits<double>::infinity();
    double largest = reference;
    for (std::size_t i = 0; i < all; ++i) {
      reference = std::fmax(reference, static_cast<double>(of_row[i].state.reference));
      largest = std::fmax(largest, static_cast<double>(of_row[i].state.largest));
    }
    double sum = 0;
    double value = 0;
    for (std::size_t i = 0; i < Columns; ++i) {
      auto const own = static_cast<double>(i < all ? of_row[i].state.reference : -infinity);
      double const factor = own == reference ? 1.0 : std::exp2(own - reference);
      wrong += is_near(found.factors[row * Columns + i], factor) ? "" : "factor " + std::to_string(i) + name;
      wrong +=
          found.given[row * Columns + i] == found.factors[row * Columns + i] ? "" : "at " + std::to_string(i) + name;
      if (i < all) {
        sum += factor * static_cast<double>(of_row[i].state.sum);
        value += factor * static_cast<double>(of_row[i].values[0]);
      }
    }
    for (split_part const& whole : {found.settled[row], found.merged[row]}) {
      wrong += static_cast<double>(whole.state.reference) == reference ? "" : "reference" + name;
      wrong += static_cast<double>(whole.state.largest) == largest ? "" : "largest" + name;
      wrong += is_near(whole.state.sum, sum) ? "" : "sum" + name;
      wrong += std::fabs(value) < 1 || is_near(whole.values[0], value) ? "" : "value" + name;
      wrong += std::isnan(value) == std::isnan(whole.values[0]) ? "" : "NaN" + name;
      wrong +=
          std::isnan(value) || std::fabs(static_cast<double>(whole.values[0]) - value) < 1e-4 ? "" : "error" + name;
    }
  }
  return wrong;
}

}  // namespace tessera_test
