// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The softmax of score_weights.hpp for rows that one thread has in memory, with AVX2 and FMA: eight scores at a time
/// become the numbers of weights' codes by piecewise_linear_softmax, with the bits of its own functions.
///
///     float const largest = by_vectors.largest(scores, row, range);      // by_vectors: a vector_weights
///     by_vectors.weigh(scores, row, largest, is_first, range.scales_are_small);
///     by_vectors.add_numbers(scores, first_row, sums);                   // of eight rows
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/vectors.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What is known of the scores of a tile.
struct score_range {
  bool scales_are_small;    ///< whether all scales are less than the softmax's most_scale
  bool scores_are_numbers;  ///< whether no score is NaN or infinity; false where scores have no scales yet
};

#if defined(TESSERA_HAS_VECTORS)

/// Columns: scores of a row in a tile. Scales: how many scales columns have, which repeat; 0: all scales are 1.
template <int Columns, int Scales>
struct vector_weights {
  static_assert(Columns % 8 == 0 && Scales % 8 == 0);
  using softmax = piecewise_linear_softmax;
  static constexpr bool are_one = Scales == 0;

  float const* of_rows;     ///< scales of rows
  float const* of_columns;  ///< scales of columns

  /// The largest score of a row, by its scales. Narrows what is known of all rows.
  template <class Sums, int Tiles>
  [[gnu::target("avx2,fma")]] float largest(Sums const (&scores)[Tiles], int row, score_range& range) const {
    detail::clear_vectors const at_end;
    eight_floats largest = eight_floats{} - infinity;
    eight_words are_in_range = eight_words{} - 1;
    for (int tile = 0; tile < Tiles; ++tile) {
      for (int column = 0; column < Columns; column += 8) {
        eight_floats const score = vector_at<eight_floats>(&scores[tile].values[row][column]).value;
        if constexpr (are_one) {
          largest = __builtin_ia32_maxps256(score, largest);
          are_in_range &= reinterpret_cast<eight_words>(score < infinity);
        } else {
          eight_floats scale;
          find_scale(row, tile * Columns + column, scale);
          largest = __builtin_ia32_maxps256(scale * score, largest);
          are_in_range &= reinterpret_cast<eight_words>(scale < softmax::most_scale);
        }
      }
    }
    float most = -infinity;
    bool is_in_range = true;
    for (int i = 0; i < 8; ++i) {
      most = maximum(most, largest[i]);
      is_in_range = is_in_range && are_in_range[i] != 0;
    }
    bool& to = are_one ? range.scores_are_numbers : range.scales_are_small;
    to = to && is_in_range;
    return most;
  }

  /// Replaces the scores of a row by numbers. is_first: in a sequence's first tile. are_small: all scales are less than
  /// most_scale.
  template <class Sums, int Tiles>
  void weigh(Sums (&scores)[Tiles], int row, float reference, bool is_first, [[maybe_unused]] bool are_small) const {
    if constexpr (!are_one) {
      if (are_small && !is_first) {
        return weigh_row<false, true>(scores, row, reference);
      }
    }
    if (is_first) {
      weigh_row<true, false>(scores, row, reference);
    } else {
      weigh_row<false, false>(scores, row, reference);
    }
  }

  /// Adds the numbers of eight rows to their sums, from the first to the last column.
  template <class Sums, int Tiles>
  static void add_numbers(Sums const (&numbers)[Tiles], int first_row, float* sums) {
    float own[8];
    for (int i = 0; i < 8; ++i) {
      own[i] = sums[first_row + i];
    }
    for (int tile = 0; tile < Tiles; ++tile) {
      for (int column = 0; column < Columns; ++column) {
        for (int i = 0; i < 8; ++i) {
          own[i] += numbers[tile].values[first_row + i][column];
        }
      }
    }
    for (int i = 0; i < 8; ++i) {
      sums[first_row + i] = own[i];
    }
  }

 private:
  /// weigh() by what is known of all scores.
  template <bool InFirst, bool AreSmall, class Sums, int Tiles>
  [[gnu::target("avx2,fma")]] void weigh_row(Sums (&scores)[Tiles], int row, float reference) const {
    detail::clear_vectors const at_end;
    for (int tile = 0; tile < Tiles; ++tile) {
      for (int column = 0; column < Columns; column += 8) {
        auto& score = vector_at<eight_floats>(&scores[tile].values[row][column]);
        eight_floats scale = eight_floats{} + 1.0F;
        find_scale(row, tile * Columns + column, scale);
        eight_floats position;
        eight_floats const sum = score.value;  // a copy: a reference would promise an address of vectors
        find_position<InFirst, AreSmall>(scale, sum, reference, position);
        eight_floats number;
        find_number(position, number);
        score.value = number;
      }
    }
  }
  /// The scales of eight scores of a row; none are found where all are 1.
  [[gnu::target("avx2,fma"), gnu::always_inline]] void find_scale(int row, int column, eight_floats& scale) const {
    if constexpr (!are_one) {
      scale = of_rows[row] * vector_at<eight_floats>(of_columns + column % Scales).value;
    }
  }
  /// See piecewise_linear_softmax::position().
  template <bool InFirst, bool AreSmall>
  [[gnu::target("avx2,fma"), gnu::always_inline]] static void find_position(eight_floats const& scale,
                                                                            eight_floats const& score, float reference,
                                                                            eight_floats& position) {
    eight_floats const zero{};
    if constexpr (!are_one) {
      eight_floats const slope = softmax::codes_in_power_of_two * scale;
      eight_floats const top = zero + (softmax::top_code - softmax::codes_in_power_of_two * reference);
      eight_floats const least = __builtin_ia32_vfmaddps256(slope, zero - softmax::integer_magic, top);
      position = __builtin_ia32_vfmaddps256(slope, softmax::integer_magic + score, least);
    }
    if constexpr (!AreSmall) {
      eight_floats const logit = __builtin_ia32_vfmaddps256(scale, score, zero);
      eight_floats exact = __builtin_ia32_vfmaddps256(zero + softmax::codes_in_power_of_two, logit - reference,
                                                      zero + softmax::top_code);
      if constexpr (InFirst) {
        exact = __builtin_ia32_roundps256(exact, 4);  // as rintf does
      }
      if constexpr (are_one) {
        position = exact;
      } else {
        auto const is_small = reinterpret_cast<eight_words>(scale < softmax::most_scale);
        position = reinterpret_cast<eight_floats>((is_small & reinterpret_cast<eight_words>(position)) |
                                                  (~is_small & reinterpret_cast<eight_words>(exact)));
      }
    }
    if constexpr (InFirst) {
      eight_floats const low = __builtin_ia32_vfmaddps256(position, zero + 0.5F, zero + 4.0F);
      position = __builtin_ia32_maxps256(position, low);
    }
  }
  /// See piecewise_linear_softmax::number_at().
  [[gnu::target("avx2,fma"), gnu::always_inline]] static void find_number(eight_floats const& position,
                                                                          eight_floats& number) {
    constexpr float integers_only = 8388608.0F;
    constexpr std::int32_t rebias = (127 - 7) << 23;
    eight_floats const rounded = __builtin_ia32_maxps256(position, eight_floats{}) + integers_only;
    auto const normal = reinterpret_cast<eight_floats>((reinterpret_cast<eight_words>(rounded) << 20) + rebias);
    number = __builtin_ia32_minps256(normal, 2.0F * normal - 0x1p-6F);
  }
};

#endif

}  // namespace detail
}  // namespace v0
}  // namespace tessera
