// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `score_weights<Softmax, Q, Product>`: the softmax of attention over codes by row words. It turns scores, which
/// are the sums of a RowTile, into the numbers that codes of their weights stand for, where they are.
///
///     using weights = detail::score_weights<Softmax, Q, Product>;
///     weights::rows state;
///     weights::begin(group, state);
///     weights::hide(group, block, first_key, scores[0]);               // where some queries do not see all keys
///     weights::make(group, scales, is_first_tile, state, scores);
///     ...                                                              // totals times state.factor, plus scores * V
///     weights::merge(group, state);                                    // in the end
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/program/attention/detail/key_cursor.hpp>
#include <tessera/program/attention/detail/weigh_by_vectors.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/serial/vectors.hpp>
#include <tessera/view/attention_mask.hpp>

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

/// What scores are multiplied by: the scales of their rows, and those of their columns, which
/// `of_columns.scale_of(column)` gives, as that of key_terms does.
template <class RowValues, class Columns>
struct score_scales {
  static constexpr bool are_one = false;
  /// How many scales columns have, which repeat.
  static constexpr int of_so_many_columns = Columns::scales;
  RowValues& of_rows;
  Columns const& of_columns;
};
/// Scores have their scales already.
struct no_score_scales {
  static constexpr bool are_one = true;
  static constexpr int of_so_many_columns = 0;
};

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
  /// Makes weights of scores, which are to be multiplied by their scales (score_scales, of integers, or
  /// no_score_scales). They are those of `Tiles` tiles side by side, whose rows have one reference. Where one is NaN or
  /// infinity, the sum of its row becomes NaN, and with it what the row results in.
  template <class Scales, int Tiles>
  TESSERA_FN static void make(group_type const& group, Scales const& scales, bool is_first, rows& state,
                              sum_tile (&scores)[Tiles]) {
    if constexpr (may_have_vectors<Scales>) {
      if (make_by_vectors(group, scales, is_first, state, scores)) {
        return;
      }
    }
    score_range const range = find_largest(group, scales, state, scores);
    turn(group, state);
    if constexpr (has_small_scales && !Scales::are_one) {
      if (range.scales_are_small && !is_first) {
        return weigh(group, scales, state, scores,
                     [](state_type const& softmax, auto... score) { return Softmax::weigh_small(softmax, score...); });
      }
    }
    if constexpr (has_numbers) {
      if (!range.scores_are_numbers) {
        poison(group, scales, state, scores);
      }
      if constexpr (Scales::are_one) {
        if (!is_first) {  // compiled by itself, as most tiles are no first ones
          return weigh_numbers<false>(group, scales, false, state, scores);
        }
      }
      weigh_numbers<true>(group, scales, is_first, state, scores);
    } else {
      weigh(group, scales, state, scores, [is_first](state_type const& softmax, auto... score) {
        auto const [code, weight] = Softmax{}.template weigh<Q>(softmax, score..., is_first);
        return weighed_number{static_cast<float>(gemm_operand<typename Q::code_type>::widen(code)), weight};
      });
    }
  }
  /// Makes sums of rows of the lanes' sums.
  TESSERA_FN static void merge(group_type const& group, rows& state) {
    Product::merge_lanes(group, sum_reducer<float>{}, state.rounded);
    if constexpr (sums_numbers_alone) {
      Product::each_row(
          group, [](int, float rounded, state_type& softmax) { softmax.sum = rounded * Softmax::weight_of_number; },
          state.rounded, state.softmax);
    } else {
      Product::each_row(
          group, [](int, float& sum, state_type const& softmax) { sum = softmax.sum; }, state.largest, state.softmax);
      Product::merge_lanes(group, sum_reducer<float>{}, state.largest);
      Product::each_row(
          group, [](int, float const& sum, state_type& softmax) { softmax.sum = sum; }, state.largest, state.softmax);
    }
  }

 private:
  /// Whether the softmax gives weights as numbers where scores are finite or hidden, those of its own weigh().
  static constexpr bool has_numbers = requires(state_type const& state, float scale) {
    requires std::is_same_v<typename Softmax::numbers_of, Softmax>;
    Softmax::template weigh_number<Q>(state, scale, scale, true);
  };
  /// Whether weights are these numbers times a constant, so that only numbers are summed.
  static constexpr bool sums_numbers_alone = has_numbers && requires { Softmax::weight_of_number; };
  /// Whether one thread has rows in memory, and a softmax that vectors weigh by.
  template <class Scales>
  static constexpr bool may_have_vectors =
      one_thread_plays<group_type>() && std::is_same_v<Softmax, piecewise_linear_softmax>&& Product::rows % 8 == 0 &&
      Product::columns % 8 == 0 && Scales::of_so_many_columns % 8 == 0;
  /// Whether it has a shorter way for small scales.
  static constexpr bool has_small_scales = has_numbers && requires(state_type const& state, float scale) {
    Softmax::most_scale;
    Softmax::weigh_small(state, scale, scale);
  };

  /// Calls function(column, score, values of its row...) for the scores of all tiles, whose columns are counted on.
  template <int Tiles, class Function, class... Values>
  TESSERA_FN static void each_score(group_type const& group, sum_tile (&scores)[Tiles], Function const& function,
                                    Values&... of_rows) {
    each_constant<Tiles>([&](auto tile) {
      Product::each_with_row(
          group, scores[tile.value],
          [&](int, int column, float& score, auto&... of_row) {
            function(tile.value * Product::columns + column, score, of_row...);
          },
          of_rows...);
    });
  }
  /// The same with the score's scale before the values.
  template <class Scales, int Tiles, class Function, class... Values>
  TESSERA_FN static void each_with_scale(group_type const& group, Scales const& scales, sum_tile (&scores)[Tiles],
                                         Function const& function, Values&... of_rows) {
    if constexpr (Scales::are_one) {
      each_score(
          group, scores, [&](int, float& score, auto&... of_row) { function(score, 1.0F, of_row...); }, of_rows...);
    } else {
      each_score(
          group, scores,
          [&](int column, float& score, float scale_of_row, auto&... of_row) {
            function(score, scale_of_row * scales.of_columns.scale_of(column), of_row...);
          },
          scales.of_rows, of_rows...);
    }
  }

  /// Makes the largest scores the rows' references.
  TESSERA_FN static void turn(group_type const& group, rows& state) {
    Product::each_row(
        group,
        [](int, float const& largest, state_type& softmax, float& rounded, float& factor) {
          factor = Softmax{}.turn(softmax, largest);
          rounded *= factor;
        },
        state.largest, state.softmax, state.rounded, state.factor);
  }
  /// Finds the largest score of each row, and tells what is known of a lane's.
  template <class Scales, int Tiles>
  TESSERA_FN static score_range find_largest(group_type const& group, Scales const& scales, rows& state,
                                             sum_tile (&scores)[Tiles]) {
    Product::each_row(
        group, [](int, float& largest) { largest = -infinity; }, state.largest);
    score_range range{true, Scales::are_one};
    each_with_scale(
        group, scales, scores,
        [&](float score, float scale, float& largest) {
          largest = maximum(largest, scale * score);
          if constexpr (Scales::are_one) {
            range.scores_are_numbers = range.scores_are_numbers && score < infinity;
          } else if constexpr (has_small_scales) {
            range.scales_are_small = range.scales_are_small && scale < Softmax::most_scale;
          }
        },
        state.largest);
    Product::merge_lanes(group, maximum_reducer<float>{}, state.largest);
    return range;
  }
  /// make() where one thread has all rows. Without vectors it returns false and does nothing.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  template <class Scales, int Tiles>
  TESSERA_FN static bool make_by_vectors([[maybe_unused]] group_type const& group,
                                         [[maybe_unused]] Scales const& scales, [[maybe_unused]] bool is_first,
                                         [[maybe_unused]] rows& state, [[maybe_unused]] sum_tile (&scores)[Tiles]) {
#if defined(TESSERA_HAS_VECTORS)
    if (!has_vectors()) {
      return false;
    }
    vector_weights<Product::columns, Scales::of_so_many_columns> by_vectors{};
    if constexpr (!Scales::are_one) {
      by_vectors = {scales.of_rows.values, scales.of_columns.scale};
    }
    score_range range{true, Scales::are_one};
    for (int row = 0; row < Product::rows; ++row) {
      state.largest.values[row] = by_vectors.largest(scores, row, range);
    }
    turn(group, state);
    bool const are_small = range.scales_are_small && !Scales::are_one;
    if (!range.scores_are_numbers && (is_first || !are_small)) {
      poison(group, scales, state, scores);
    }
    for (int row = 0; row < Product::rows; row += 8) {
      for (int i = row; i < row + 8; ++i) {
        by_vectors.weigh(scores, i, state.softmax.values[i].reference, is_first, are_small);
      }
      by_vectors.add_numbers(scores, row, state.rounded.values);
    }
    return true;
#else
    return false;
#endif
  }
  /// Replaces scores by the numbers of their weights' codes: one(softmax, scale, score) gives a weighed_number.
  template <class Scales, int Tiles, class One>
  TESSERA_FN static void weigh(group_type const& group, Scales const& scales, rows& state, sum_tile (&scores)[Tiles],
                               One const& one) {
    each_with_scale(
        group, scales, scores,
        [&](float& score, float scale, state_type& softmax, float& rounded) {
          weighed_number const found = one(softmax, scale, score);
          if constexpr (!sums_numbers_alone) {
            softmax.sum += found.weight;
          }
          rounded += found.number;
          score = found.number;
        },
        state.softmax, state.rounded);
  }
  /// Does so by weigh_number(). MayBeFirst: whether `is_first` may be true.
  template <bool MayBeFirst, class Scales, int Tiles>
  TESSERA_FN static void weigh_numbers(group_type const& group, Scales const& scales, bool is_first, rows& state,
                                       sum_tile (&scores)[Tiles]) {
    weigh(group, scales, state, scores, [is_first](state_type const& softmax, auto... score) {
      return Softmax::template weigh_number<Q>(softmax, score..., MayBeFirst && is_first);
    });
  }
  /// Makes sums of numbers NaN in rows that have a score which is NaN or infinity, and with them all that is divided by
  /// them.
  template <class Scales, int Tiles>
  TESSERA_FN static void poison(group_type const& group, Scales const& scales, rows& state, sum_tile (&scores)[Tiles]) {
    each_with_scale(
        group, scales, scores,
        [&](float score, float scale, state_type& softmax, float& rounded) {
          float& sum = sums_numbers_alone ? rounded : softmax.sum;
          sum = scale * score < infinity || score == -infinity ? sum : bit_cast<float>(0x7fffffffU);
        },
        state.softmax, state.rounded);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
