// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `score_weights<Softmax, Q, Product>`: the softmax of attention over codes by row words. It turns scores, which
/// are the sums of a RowTile, into the numbers that codes of their weights stand for, where they are.
///
///     using weights = score_weights<Softmax, Q, Product>;
///     typename weights::rows state;
///     weights::begin(group, state);
///     weights::hide(group, block, first_key, scores);                  // where some queries do not see all keys
///     weights::make(group, row_scales, column_scales, is_first_tile, state, scores);
///     ...                                                              // totals times state.factor, plus scores * V
///     weights::merge(group, state);                                    // in the end
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/key_cursor.hpp>
#include <tessera/program/attention/mask.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/gemm_operand.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The columns of scores that a row sees.
struct seen_columns {
  int first;  ///< the first column
  int end;    ///< one past the last column

  /// Whether a column is seen.
  TESSERA_FN bool contain(int column) const { return column >= first && column < end; }
  /// Those of a query, of `columns` keys from `first_key` on.
  TESSERA_FN static seen_columns of(attention_mask const& mask, std::int64_t query, std::int64_t first_key,
                                    int columns) {
    key_interval const seen = mask.of(query);
    auto const column = [=](std::int64_t key) {
      return static_cast<int>(min(max(key - first_key, std::int64_t{0}), std::int64_t{columns}));
    };
    return {column(seen.first), column(seen.end)};
  }
};

/// One of a tile's scales of columns. They repeat where there are fewer than columns.
template <int Scales>
TESSERA_FN float column_scale(float const (&scales)[Scales], int column) {
  return scales[static_cast<unsigned>(column) % static_cast<unsigned>(Scales)];
}

/// Softmax: the row's softmax. Q: the quantizer of weights. Product: the RowTile that scores are the sums of.
template <class Softmax, class Q, class Product>
struct score_weights {
  using group_type = typename Product::group_type;
  using sum_tile = typename Product::sum_tile;
  using state_type = typename Softmax::state_type;
  template <class Value>
  using each = typename Product::template row_values<Value>;

  /// What is known of rows. Sums are those of a lane's own columns until merge().
  struct rows {
    each<float> largest;       ///< the largest of the last scores
    each<state_type> softmax;  ///< the row's softmax
    each<float> rounded;       ///< the sum of the numbers of weights' codes
    each<float> factor;        ///< what earlier sums of the row are multiplied by
  };

  /// Rows before their first scores.
  TESSERA_FN static void begin(group_type const& group, rows& state) {
    Product::each_row(
        group,
        [](int, state_type& softmax, float& rounded) {
          softmax = Softmax{}.identity();
          rounded = 0.0F;
        },
        state.softmax, state.rounded);
  }
  /// Hides scores of keys that a row does not see: they become minus infinity.
  template <int Rows>
  TESSERA_FN static void hide(group_type const& group, query_block<Rows> const& block, std::int64_t first,
                              sum_tile& scores) {
    each<seen_columns> seen;
    Product::each_row(
        group,
        [&](int row, seen_columns& to) {
          to = seen_columns::of(block.mask, block.first_query + row, first, Product::columns);
        },
        seen);
    Product::each_with_row(
        group, scores,
        [](int, int column, float& score, seen_columns const& of_row) {
          score = of_row.contain(column) ? score : -infinity;
        },
        seen);
  }
  /// Makes weights of scores, which are to be multiplied by the scales of their rows and columns. Where one is NaN or
  /// infinity, the sum of its row becomes NaN, and with it what the row results in.
  template <int Scales>
  TESSERA_FN static void make(group_type const& group, each<float>& row_scales, float const (&column_scales)[Scales],
                              bool is_first, rows& state, sum_tile& scores) {
    bool const are_small = find_largest(group, row_scales, column_scales, state, scores);
    Product::each_row(
        group,
        [](int, float const& largest, state_type& softmax, float& rounded, float& factor) {
          factor = Softmax{}.turn(softmax, largest);
          rounded *= factor;
        },
        state.largest, state.softmax, state.rounded, state.factor);
    if constexpr (has_small_scales) {
      if (are_small && !is_first) {
        return weigh(group, row_scales, column_scales, state, scores,
                     [](state_type const& softmax, auto... score) { return Softmax::weigh_small(softmax, score...); });
      }
    }
    if constexpr (has_numbers) {
      poison(group, row_scales, column_scales, state, scores);
      weigh(group, row_scales, column_scales, state, scores, [is_first](state_type const& softmax, auto... score) {
        return Softmax::template weigh_number<Q>(softmax, score..., is_first);
      });
    } else {
      weigh(group, row_scales, column_scales, state, scores, [is_first](state_type const& softmax, auto... score) {
        auto const [code, weight] = Softmax{}.template weigh<Q>(softmax, score..., is_first);
        return weighed_number{static_cast<float>(gemm_operand<typename Q::code_type>::widen(code)), weight};
      });
    }
  }
  /// Makes sums of rows of the lanes' sums.
  TESSERA_FN static void merge(group_type const& group, rows& state) {
    Product::each_row(
        group, [](int, float& sum, state_type const& softmax) { sum = softmax.sum; }, state.largest, state.softmax);
    Product::merge_lanes(group, sum_reducer<float>{}, state.largest);
    Product::merge_lanes(group, sum_reducer<float>{}, state.rounded);
    Product::each_row(
        group, [](int, float const& sum, state_type& softmax) { softmax.sum = sum; }, state.largest, state.softmax);
  }

 private:
  /// Whether the softmax gives weights as numbers where scores are finite or hidden, those of its own weigh().
  static constexpr bool has_numbers = requires(state_type const& state, float scale) {
    requires std::is_same_v<typename Softmax::numbers_of, Softmax>;
    Softmax::template weigh_number<Q>(state, scale, scale, true);
  };
  /// Whether it has a shorter way for small scales.
  static constexpr bool has_small_scales = has_numbers && requires(state_type const& state, float scale) {
    Softmax::most_scale;
    Softmax::weigh_small(state, scale, scale);
  };

  /// Finds the largest score of each row. Gives whether the lane's scales are small.
  template <int Scales>
  TESSERA_FN static bool find_largest(group_type const& group, each<float>& row_scales,
                                      float const (&column_scales)[Scales], rows& state, sum_tile& scores) {
    Product::each_row(
        group, [](int, float& largest) { largest = -infinity; }, state.largest);
    bool are_small = true;
    Product::each_with_row(
        group, scores,
        [&](int, int column, float score, float of_row, float& largest) {
          float const scale = of_row * column_scale(column_scales, column);
          largest = maximum(largest, scale * score);
          if constexpr (has_small_scales) {
            are_small = are_small && scale < Softmax::most_scale;
          }
        },
        row_scales, state.largest);
    Product::merge_lanes(group, maximum_reducer<float>{}, state.largest);
    return are_small;
  }
  /// Replaces scores by the numbers of their weights' codes: one(softmax, scale, score) gives a weighed_number.
  template <int Scales, class One>
  TESSERA_FN static void weigh(group_type const& group, each<float>& row_scales, float const (&column_scales)[Scales],
                               rows& state, sum_tile& scores, One const& one) {
    Product::each_with_row(
        group, scores,
        [&](int, int column, float& score, float of_row, state_type& softmax, float& rounded) {
          weighed_number const found = one(softmax, of_row * column_scale(column_scales, column), score);
          softmax.sum += found.weight;
          rounded += found.number;
          score = found.number;
        },
        row_scales, state.softmax, state.rounded);
  }
  /// Makes sums of rows NaN that have a score which is NaN or infinity.
  template <int Scales>
  TESSERA_FN static void poison(group_type const& group, each<float>& row_scales, float const (&column_scales)[Scales],
                                rows& state, sum_tile& scores) {
    Product::each_with_row(
        group, scores,
        [&](int, int column, float score, float of_row, state_type& softmax) {
          bool const is_number = of_row * column_scale(column_scales, column) * score < infinity;
          softmax.sum = is_number || score == -infinity ? softmax.sum : bit_cast<float>(0x7fffffffU);
        },
        row_scales, state.softmax);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
