// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Softmaxes for the words that weigh rows of scores, and a program of these words, which all models must give the same
/// references with, and the same sums up to rounding.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/math.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/rows/weigh_rows.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

using namespace tessera;

/// A softmax with headroom, which counts how often lanes agree on other references.
struct referred_softmax {
  using largest_type = maximum_reducer<float>;
  using sum_type = sum_reducer<float>;
  struct state_type {
    float reference;
    float sum;
  };
  float headroom;
  int agreements = 0;

  [[nodiscard]] TESSERA_FN bool is_beyond(state_type const& state, float largest) const {
    return largest > state.reference + headroom;
  }
  TESSERA_FN void agree() { ++agreements; }
  TESSERA_FN static float raise(state_type& state, float largest) {
    float const raised = std::fmax(state.reference, largest);
    float const factor = std::exp2(state.reference - raised);
    state.reference = raised;
    state.sum *= factor;
    return factor;
  }
  TESSERA_FN static float weight(state_type const& state, float score) { return std::exp2(score - state.reference); }
  TESSERA_FN static void add(state_type& state, float sum) { state.sum += sum; }
};

/// A softmax relative to the largest score so far.
struct raised_softmax {
  using largest_type = maximum_reducer<float>;
  using sum_type = sum_reducer<float>;
  static constexpr bool sums_whole_rows = true;
  struct state_type {
    float reference;
    float sum;
  };
  TESSERA_FN static float turn(state_type& state, float largest) {
    float const before = state.reference;
    state.reference = std::fmax(before, largest);
    return std::exp2(before - known(state.reference));
  }
  TESSERA_FN static float weight(state_type const& state, float score) {
    return std::exp2(score - known(state.reference));
  }
  TESSERA_FN static void add(state_type& state, float factor, float sum) { state.sum = state.sum * factor + sum; }
  /// A row that has seen nothing has no reference to subtract.
  TESSERA_FN static float known(float reference) { return reference == -infinity ? 0.0F : reference; }
};

/// What a row knows in the end, and a sum of weights that was rescaled as outputs are.
struct weighed_row {
  float reference;
  float sum;
  float total;
};
/// Merges what lanes know of a row whose references are their own.
struct weighed_row_reducer {
  using state_type = weighed_row;
  using input_type = weighed_row;
  TESSERA_FN constexpr state_type identity() const { return {-infinity, 0.0F, 0.0F}; }
  TESSERA_FN void push(state_type& state, input_type const& row) const { merge(state, row); }
  TESSERA_FN void merge(state_type& into, state_type const& other) const {
    float const reference = std::fmax(into.reference, other.reference);
    float const own = std::exp2(into.reference - raised_softmax::known(reference));
    float const theirs = std::exp2(other.reference - raised_softmax::known(reference));
    into = {reference, own * into.sum + theirs * other.sum, own * into.total + theirs * other.total};
  }
};

/// Weighs tiles of scores by weigh_rows, weigh_rows_with_headroom and weigh_lanes. Words: has `of<Group>`, RowWords for
/// floats.
template <class Words, int Lanes>
struct weighed_rows {
  static constexpr int lanes = Lanes;
  struct scratch_type {};
  matrix_view<float const> scores;  ///< a whole number of tiles along columns
  float headroom;
  array_view<weighed_row> by_rows, with_headroom, by_lanes;  ///< of each row
  array_view<std::int32_t> agreements;                       ///< how often references were raised

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    using words = typename Words::template of<G>;
    weigh<words>(group, true, by_rows);
    weigh<words>(group, false, by_lanes);
    weigh_with_headroom<words>(group);
  }

 private:
  /// The scores of a tile.
  template <class W, class G>
  TESSERA_FN void read(G const& group, int tile, typename W::sum_tile& to) const {
    W::each_with_row(group, to, [&, this](int row, int column, float& score) {
      score = scores(row, std::int64_t{tile} * W::columns + column);
    });
  }
  template <class W, class G>
  TESSERA_FN void weigh(G const& group, bool has_rows, array_view<weighed_row> const& made) const {
    typename W::template row_values<raised_softmax::state_type> states;
    typename W::template row_values<float> factors;
    typename W::template row_values<float> totals;  // of a lane's own weights
    W::each_row(
        group,
        [](int, raised_softmax::state_type& state, float& total) {
          state = {-infinity, 0.0F};
          total = 0.0F;
        },
        states, totals);
    for (int tile = 0; tile < static_cast<int>(scores.extent(1)) / W::columns; ++tile) {
      typename W::sum_tile weights;
      read<W>(group, tile, weights);
      if (has_rows) {
        weigh_rows<W>(group, raised_softmax{}, weights, states, factors);
      } else {
        weigh_lanes<W>(group, raised_softmax{}, weights, states, factors);
      }
      W::each_row(
          group, [](int, float& total, float factor) { total *= factor; }, totals, factors);
      W::each_with_row(
          group, weights, [](int, int, float weight, float& total) { total += weight; }, totals);
    }
    if (has_rows) {
      W::merge_lanes(group, sum_reducer<float>{}, totals);
    }
    typename W::template row_values<weighed_row> rows;
    W::each_row(
        group,
        [](int, weighed_row& row, raised_softmax::state_type const& state, float total) {
          row = {state.reference, state.sum, total};
        },
        rows, states, totals);
    if (!has_rows) {
      W::merge_lanes(group, weighed_row_reducer{}, rows);
    }
    W::each_row_once(
        group, [&](int row, weighed_row const& one) { made[row] = one; }, rows);
  }
  template <class W, class G>
  TESSERA_FN void weigh_with_headroom(G const& group) const {
    referred_softmax softmax{headroom};
    typename W::template row_values<referred_softmax::state_type> states;
    typename W::template row_values<float> sums;
    typename W::template row_values<float> totals;
    W::each_row(
        group,
        [](int, referred_softmax::state_type& state, float& total) {
          state = {-3.0e38F, 0.0F};
          total = 0.0F;
        },
        states, totals);
    for (int tile = 0; tile < static_cast<int>(scores.extent(1)) / W::columns; ++tile) {
      typename W::sum_tile weights;
      read<W>(group, tile, weights);
      weigh_rows_with_headroom<W>(group, softmax, weights, states, [&](auto& factors) {
        W::each_row(
            group, [](int, float& total, float factor) { total *= factor; }, totals, factors);
      });
      W::each_with_row(
          group, weights, [](int, int, float weight, float& total) { total += weight; }, totals);
    }
    W::each_row(
        group, [](int, referred_softmax::state_type const& state, float& sum) { sum = state.sum; }, states, sums);
    W::merge_lanes(group, sum_reducer<float>{}, sums);
    W::merge_lanes(group, sum_reducer<float>{}, totals);
    W::each_row_once(
        group,
        [&, this](int row, referred_softmax::state_type const& state, float sum, float total) {
          with_headroom[row] = {state.reference, sum, total};
          agreements[0] = softmax.agreements;  // that of every lane
        },
        states, sums, totals);
  }
};

/// Scores that grow from tile to tile, with a row that sees nothing, one whose first tile is hidden, and one far above
/// the others.
struct weighed_rows_problem {
  int rows, columns;  ///< of a tile
  int tiles;
  float headroom;
  std::vector<float> scores;
  std::vector<weighed_row> by_rows, with_headroom, by_lanes;
  std::vector<std::int32_t> agreements{-7};

  weighed_rows_problem(int tile_rows, int tile_columns, int count, float room)
      : rows(tile_rows), columns(tile_columns), tiles(count), headroom(room) {
    int const all = columns * tiles;
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < all; ++column) {
        auto const random = testing::hash(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(column)) % 64;
        bool const is_hidden = row == 3 || (row == 1 && column < columns);
        float const raised = row == 2 ? 60.0F : 0.0F;
        scores.push_back(is_hidden ? -infinity
                                   : static_cast<float>(random) / 16.0F + raised + static_cast<float>(column) / 16.0F);
      }
    }
    by_rows = with_headroom = by_lanes = std::vector<weighed_row>(static_cast<std::size_t>(rows), {-7, -7, -7});
  }

  /// Everything that differs from a softmax in double, in words.
  [[nodiscard]] std::string wrong() const {
    std::string text = agreements[0] == expected_agreements() ? "" : "how often lanes agree; ";
    for (int row = 0; row < rows; ++row) {
      auto const at = static_cast<std::size_t>(row);
      std::string const name = " of row " + std::to_string(row) + "; ";
      double largest = -std::numeric_limits<double>::infinity();
      for (int column = 0; column < columns * tiles; ++column) {
        largest = std::fmax(largest, score(row, column));
      }
      for (weighed_row const* found : {&by_rows[at], &by_lanes[at]}) {
        std::string const who = found == &by_rows[at] ? "weigh_rows" : "weigh_lanes";
        text += static_cast<double>(found->reference) == largest ? "" : who + ": reference" + name;
        text += is_near(row, *found) ? "" : who + ": sum" + name;
      }
      text += is_near(row, with_headroom[at]) ? "" : "weigh_rows_with_headroom: sum" + name;
    }
    return text;
  }

 private:
  [[nodiscard]] double score(int row, int column) const {
    return static_cast<double>(scores[static_cast<std::size_t>(row * columns * tiles + column)]);
  }
  [[nodiscard]] bool is_near(int row, weighed_row const& found) const {
    double sum = 0;
    for (int column = 0; column < columns * tiles; ++column) {
      sum += score(row, column) == -std::numeric_limits<double>::infinity()
                 ? 0.0
                 : std::exp2(score(row, column) - static_cast<double>(found.reference));
    }
    return std::fabs(static_cast<double>(found.sum) - sum) <= 1e-5 * sum &&
           std::fabs(static_cast<double>(found.total) - sum) <= 1e-5 * sum;
  }
  /// References are raised, all at once, in tiles in which a row is beyond its own.
  [[nodiscard]] int expected_agreements() const {
    std::vector<float> references(static_cast<std::size_t>(rows), -3.0e38F);
    int count = 0;
    for (int tile = 0; tile < tiles; ++tile) {
      std::vector<float> largest(references.size(), -infinity);
      bool is_beyond = false;
      for (std::size_t row = 0; row < references.size(); ++row) {
        for (int column = 0; column < columns; ++column) {
          largest[row] =
              std::fmax(largest[row], static_cast<float>(score(static_cast<int>(row), tile * columns + column)));
        }
        is_beyond = is_beyond || largest[row] > references[row] + headroom;
      }
      count += is_beyond ? 1 : 0;
      for (std::size_t row = 0; is_beyond && row < references.size(); ++row) {
        references[row] = std::fmax(references[row], largest[row]);
      }
    }
    return count;
  }
};

/// What is wrong with the words of an executor on the host.
template <class Words, int Rows, int Columns, class Exec>
std::string wrong_weights_of(Exec const& exec, int tiles, float headroom) {
  weighed_rows_problem problem(Rows, Columns, tiles, headroom);
  exec.run(weighed_rows<Words, 32>{{problem.scores.data(), {Rows, Columns * tiles}},
                                   headroom,
                                   {problem.by_rows},
                                   {problem.with_headroom},
                                   {problem.by_lanes},
                                   {problem.agreements}},
           1);
  return problem.wrong();
}

}  // namespace tessera_test
