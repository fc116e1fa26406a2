// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_terms`: what dense_by_warps adds to scores: nothing, a line for each row, biases from memory, or a function
/// that is called for each score.
///
/// add() makes natural scores of products, of which the softmax then makes logits in base 2: so a bias is added by the
/// multiply-add that scales its product. A line's biases at the tile's first key are another number for each row, which
/// the softmax of the rows adds (placed_headroom_softmax); what is left of them is the same for all rows. Of biases
/// from memory a lane loads pairs, those of its two neighbouring keys, where rows of them begin at multiples of pairs.
///
/// Instructions for each score beside those of attention without terms: a multiply-add with a line; with biases of
/// 16 bits half a load, a conversion and a multiply-add; with a function what it takes, and a multiply-add.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/dense_softmax.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/view/attention_block_list.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What a program has to add to scores, natural: the caller's own bias.
template <class Bias>
struct added_bias {
  Bias bias;
  TESSERA_FN Bias const& added() const { return bias; }
};
/// Nothing, which takes no room among the arguments of a kernel.
template <>
struct added_bias<no_bias> {
  TESSERA_FN no_bias added() const { return {}; }
};
/// Which tiles of keys are seen.
template <bool IsListed>
struct listed_keys {
  attention_block_list list;
};
/// All of them.
template <>
struct listed_keys<false> {};

/// Whether biases lie in memory as values that lanes load in pairs: those of a dense_bias of 16 bits or of float.
template <class Bias>
inline constexpr bool has_bias_pairs = false;
/// A dense_bias of 16 bits or of float has pairs.
template <class T>
inline constexpr bool has_bias_pairs<dense_bias<T>> = is_16_bit_float<T> || std::is_same_v<T, float>;

/// Bias: no_bias or the caller's own. Scores: the row_tile of a warp, whose sums are those of mma.sync.
template <class Bias, class Scores>
struct dense_terms {
  static constexpr bool has_line = LinearBias<Bias>;               ///< whether a row's biases lie on a line
  static constexpr bool has_pairs = has_bias_pairs<Bias>;          ///< whether biases lie in memory
  static constexpr bool are_none = std::is_same_v<Bias, no_bias>;  ///< whether nothing is added
  using softmax_type =
      std::conditional_t<has_line, placed_headroom_softmax,
                         std::conditional_t<are_none, sloped_headroom_softmax, lowest_headroom_softmax>>;
  using sums = typename Scores::sum_tile;
  static constexpr int tiles = Scores::rows / 16;           ///< 16 rows of the warp
  static constexpr int column_tiles = Scores::columns / 8;  ///< 8 keys of a tile

  struct line_of_head {
    float slope;  ///< natural, from key to key
  };
  struct nothing_of_head {};
  /// What is known of a head's terms.
  std::conditional_t<has_line, line_of_head, nothing_of_head> of_head;

  /// The terms of a head.
  __device__ __forceinline__ static dense_terms of(std::int64_t sequence, std::int64_t head, Bias const& bias) {
    if constexpr (has_line) {
      return {{bias.slope(sequence, head)}};
    } else {
      return {};
    }
  }
  /// Where the scores of a warp are.
  struct place {
    std::int64_t sequence;
    std::int64_t head;
    int first_query;  ///< the warp's first query
    int first_key;    ///< the tile's first key
    int queries;      ///< queries of the sequence
    int keys;         ///< keys of the sequence
    bool is_plain;    ///< whether all queries and keys of the tile exist, and all are seen
  };

  /// What products are multiplied by, where scores are multiplied by `scale`: they then are logits in base 2, or, where
  /// something is added to them, natural ones.
  static constexpr float factor_of(float scale) { return are_none ? scale * log2_e : scale; }
  /// What the softmax multiplies by, for logits in base 2, of products that are multiplied by `factor`.
  __device__ __forceinline__ static constexpr float slope_of(float factor) { return are_none ? factor : log2_e; }
  /// Makes natural scores of products.
  template <class States>
  __device__ __forceinline__ void add(int lane, Bias const& bias, place const& at, float scale, sums& scores,
                                      States& states) const {
    if constexpr (has_line) {
      add_line(lane, of_head.slope, at, scale, scores, states);
    } else if constexpr (has_pairs) {
      if (at.is_plain && lies_in_pairs(bias)) {
        add_pairs(lane, bias, at, scale, scores);
      } else {
        add_function<false>(lane, bias, at, scale, scores);
      }
    } else if constexpr (!are_none) {
      if (at.is_plain) {
        add_function<true>(lane, bias, at, scale, scores);
      } else {
        add_function<false>(lane, bias, at, scale, scores);
      }
    }
  }

 private:
  static constexpr float log2_e = 1.4426950408889634F;

  /// Calls function(t, half) for a lane's rows.
  template <class Function>
  __device__ __forceinline__ static void each_row(Function const& function) {
#pragma unroll
    for (int i = 0; i < 2 * tiles; ++i) {
      function(i / 2, i % 2);
    }
  }
  /// The query of a row.
  __device__ __forceinline__ static int query_of(int lane, place const& at, int t, int half) {
    return at.first_query + lane / 4 + 16 * t + 8 * half;
  }

  template <class States>
  __device__ __forceinline__ static void add_line(int lane, float slope, place const& at, float scale, sums& scores,
                                                  States& states) {
    float const of_lane = slope * static_cast<float>(lane % 4 * 2);
#pragma unroll
    for (int columns = 0; columns < column_tiles; ++columns) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float const term = __fmaf_rn(slope, static_cast<float>(8 * columns + i), of_lane);
        each_row([&](int t, int half) {
          float& score = scores.values[t][columns][2 * half + i];
          score = __fmaf_rn(score, scale, term);
        });
      }
    }
    each_row([&](int t, int half) {
      float const distance = static_cast<float>(at.first_key - query_of(lane, at, t, half));
      placed_headroom_softmax::place(states.values[t][half], slope * log2_e * distance);
    });
  }

  /// Whether rows of biases begin at multiples of pairs.
  template <class T>
  __device__ __forceinline__ static bool lies_in_pairs(dense_bias<T> const& bias) {
    auto const& biases = bias.biases;
    std::int64_t const odd = biases.stride(0) | biases.stride(1) | biases.stride(2);
    return biases.stride(3) == 1 && odd % 2 == 0 &&
           reinterpret_cast<std::uintptr_t>(biases.data) % (2 * sizeof(T)) == 0;
  }
  /// Two neighbouring values.
  template <class T>
  __device__ __forceinline__ static float2 pair_at(T const* from) {
    if constexpr (std::is_same_v<T, float>) {
      return *reinterpret_cast<float2 const*>(from);
    } else {
      return unpack_pair<T>(*reinterpret_cast<std::uint32_t const*>(from));
    }
  }
  template <class T>
  __device__ __forceinline__ static void add_pairs(int lane, dense_bias<T> const& bias, place const& at, float scale,
                                                   sums& scores) {
    each_row([&](int t, int half) {
      T const* const row = &bias.biases(at.sequence, at.head, query_of(lane, at, t, half), at.first_key + lane % 4 * 2);
#pragma unroll
      for (int columns = 0; columns < column_tiles; ++columns) {
        float2 const pair = pair_at(row + 8 * columns);
        float(&four)[4] = scores.values[t][columns];
        four[2 * half] = __fmaf_rn(four[2 * half], scale, pair.x);
        four[2 * half + 1] = __fmaf_rn(four[2 * half + 1], scale, pair.y);
      }
    });
  }

  /// Calls the bias for each score. All: for existing queries and keys only, which all are; else biases of others are
  /// those of the last one.
  template <bool All>
  __device__ __forceinline__ static void add_function(int lane, Bias const& bias, place const& at, float scale,
                                                      sums& scores) {
#pragma unroll
    for (int columns = 0; columns < column_tiles; ++columns) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int const key = at.first_key + 8 * columns + lane % 4 * 2 + i;
        each_row([&](int t, int half) {
          int const query = query_of(lane, at, t, half);
          float& score = scores.values[t][columns][2 * half + i];
          score = __fmaf_rn(
              score, scale,
              bias(at.sequence, at.head, All ? query : min(query, at.queries - 1), All ? key : min(key, at.keys - 1)));
        });
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
