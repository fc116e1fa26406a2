// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `decode_columns`: the running attention of a warp over up to eight rows of queries, which are the columns of its
/// tensor core products (mma.sync.m16n8k16): sums of weights and of weighted values, relative to a reference.
///
///     scores   rows: tokens       depth: channels    columns: queries         16 tokens at a time
///     values   rows: channels     depth: tokens      columns: queries
///
/// The words for rows of sums (RowWords, concepts/tile_mma.hpp) have such tiles the other way round: a query is a row
/// of the row_tile of eight rows, whose columns are tokens or channels (tile/cuda/detail/turned_fragments.cuh). With
/// g = lane / 4 and t = lane % 4 a lane has scores and outputs of queries 2t and 2t + 1: [0] and [1] are those of token
/// or channel g, [2] and [3] those of g + 8. Scores are in base 2.
///
/// The reference of a query is an earlier largest score. Only if a score is more than 8 above it (a factor of 2^8), the
/// warp's lanes agree on a new reference and rescale the sums. Weights are at most 2^8, and one of them is 1.
#pragma once

#include <cstdint>

#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/row_parts.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/rows/weigh_rows.hpp>

namespace tessera {
inline namespace v0 {

/// Rows of queries that one read of keys and values serves.
inline constexpr int decode_rows = 8;

/// Powers of 2 by one instruction.
struct fast_binary_power {
  /// The power.
  __device__ __forceinline__ static float of(float exponent) { return fast_exp2(exponent); }
};
/// Powers of e by two instructions.
struct fast_natural_power {
  /// The power.
  __device__ __forceinline__ static float of(float exponent) { return fast_exp2(exponent * 1.4426950408889634F); }
};

/// The softmax of weigh_rows, and of parts of rows that programs of devices merge (reduce/row_parts.hpp). A state has
/// no largest score besides its reference. Factors of online_softmax may be denormal; here they are 0. Power:
/// fast_binary_power, or fast_natural_power for natural scores.
template <class Power = fast_binary_power>
struct relative_softmax {
  using largest_type = maximum_reducer<float>;   ///< a Reducer of a tile's scores
  using sum_type = sum_reducer<float>;           ///< a Reducer of a tile's weights
  static constexpr bool sums_whole_rows = true;  ///< states are those of whole rows
  /// What is known of scores.
  struct state_type {
    float reference;  ///< the largest score; minus infinity before the first one
    float sum;        ///< the sum of weights, the powers of score - reference
  };
  using input_type = float;
  /// The factors of two weighted sums, so that they can be added.
  struct factors {
    float of_first;   ///< the factor of the first state's weighted sum
    float of_second;  ///< the factor of the second state's weighted sum
  };

  __device__ __forceinline__ constexpr state_type identity() const { return {-infinity, 0.0F}; }
  __device__ __forceinline__ void push(state_type& state, float score) const { merge(state, {score, 1.0F}); }
  /// Adds another state. Returns the factors that both weighted sums are to be multiplied by before they are added.
  __device__ __forceinline__ factors merge(state_type& into, state_type const& other) const {
    factors const by = merge_factors(into, other);
    into = {fmaxf(into.reference, other.reference), into.sum * by.of_first + other.sum * by.of_second};
    return by;
  }
  /// The factors by which merge() multiplies the sums of both states.
  __device__ __forceinline__ factors merge_factors(state_type const& first, state_type const& second) const {
    float const reference = known(fmaxf(first.reference, second.reference));
    return {Power::of(first.reference - reference), Power::of(second.reference - reference)};
  }

  /// What the sums of a part are multiplied by where `whole` has no smaller reference.
  __device__ __forceinline__ float factor(state_type const& part, state_type const& whole) const {
    return Power::of(part.reference - known(whole.reference));
  }

  /// Begins a tile of scores. Returns the factor of what was added up before.
  __device__ __forceinline__ float turn(state_type& state, float largest) const {
    float const before = state.reference;
    state.reference = fmaxf(before, largest);
    return Power::of(before - known(state.reference));
  }
  /// The weight of a score of the tile; 0 for minus infinity.
  __device__ __forceinline__ float weight(state_type const& state, float score) const {
    return Power::of(score - known(state.reference));
  }
  /// Adds the tile's weights.
  __device__ __forceinline__ void add(state_type& state, float factor, float sum) const {
    state.sum = __fmaf_rn(state.sum, factor, sum);
  }

 private:
  /// What is subtracted from scores: 0 where all of them are minus infinity.
  __device__ __forceinline__ static float known(float reference) { return reference == -infinity ? 0.0F : reference; }
};
/// The same for rows of one tile, before which nothing was added up: it needs no state to begin with.
template <class Power = fast_binary_power>
struct tile_softmax : relative_softmax<Power> {
  using typename relative_softmax<Power>::state_type;

  /// Begins the tile. Nothing is to be multiplied by the factor.
  __device__ __forceinline__ float turn(state_type& state, float largest) const {
    state.reference = largest;
    return 0.0F;
  }
  /// Takes the tile's weights.
  __device__ __forceinline__ void add(state_type& state, float, float sum) const { state.sum = sum; }
};
/// Sums of weights and of weighted values of a part of a row. Channels: how many of the values.
template <int Channels>
using relative_part = row_part<relative_softmax<>::state_type, Channels>;
/// Merges such parts.
template <int Channels>
using relative_reducer = part_reducer<relative_softmax<>, relative_part<Channels>>;

/// The softmax of weigh_rows_with_headroom.
struct decode_softmax {
  using largest_type = maximum_reducer<float>;  ///< a Reducer of a tile's scores
  using sum_type = sum_reducer<float>;          ///< a Reducer of a tile's weights
  static constexpr float headroom = 8.0F;       ///< how far a score may be above the reference, in base 2
  /// The reference before the first score: below all finite ones; its difference to itself is 0.
  static constexpr float no_reference = -3.0e38F;
  /// What a lane knows of a row.
  struct state_type {
    float reference;  ///< what scores are relative to, the same in all lanes of the row
    float sum;        ///< the sum of the lane's weights
  };

  __device__ __forceinline__ static state_type identity() { return {no_reference, 0.0F}; }
  /// Whether a score is too far above the reference.
  __device__ __forceinline__ bool is_beyond(state_type const& state, float largest) const {
    return largest > state.reference + headroom;
  }
  /// Nothing is left to agree on.
  __device__ __forceinline__ void agree() const {}
  /// Raises the reference to the row's largest score. Returns the factor of what was added up before.
  __device__ __forceinline__ float raise(state_type& state, float largest) const {
    float const raised = fmaxf(state.reference, largest);
    float const factor = fast_exp2(state.reference - raised);
    state.reference = raised;
    state.sum *= factor;
    return factor;
  }
  /// The weight of a score, relative to the reference.
  __device__ __forceinline__ float weight(state_type const& state, float score) const {
    return fast_exp2(score - state.reference);
  }
  __device__ __forceinline__ void add(state_type& state, float sum) const { state.sum += sum; }
};

template <int Channels>
struct decode_columns {
  static constexpr int strips = Channels / 16;
  /// The words for outputs: a row is a query, a column a channel.
  using outputs_type = row_tile<float16, shape<decode_rows, Channels, 16>, cuda_warp>;
  /// The words for the scores of so many tokens, which are columns.
  template <int Tokens>
  using scores_type = row_tile<float16, shape<decode_rows, Tokens, 16>, cuda_warp>;
  /// The product of weights of so many tokens, rounded to T, and values.
  template <class T, int Tokens>
  using values_product = row_tile<T, shape<decode_rows, Channels, Tokens>, cuda_warp>;
  /// Weights as the second operands of tensor cores.
  template <class T, int Tokens>
  using operands_type = typename values_product<T, Tokens>::a_tile;
  template <class Value>
  using row_values = typename outputs_type::template row_values<Value>;  ///< a value for each row

  typename outputs_type::sum_tile outputs;         ///< sums of weighted values
  row_values<decode_softmax::state_type> softmax;  ///< what is known of the rows

  /// Sets the state before the first key.
  __device__ __forceinline__ void clear() {
    cuda_warp const group;
    outputs_type::clear(group, outputs);
    outputs_type::each_row(
        group, [](int, decode_softmax::state_type& state) { state = decode_softmax::identity(); }, softmax);
  }
  /// Multiplies outputs by a factor for each row.
  __device__ __forceinline__ void rescale(row_values<float>& factors) {
    outputs_type::each_with_row(
        cuda_warp{}, outputs, [](int, int, float& output, float factor) { output *= factor; }, factors);
  }
  /// Turns scores into weights, and adds these to the sums of rows.
  template <int Tokens>
  __device__ __forceinline__ void weigh(typename scores_type<Tokens>::sum_tile& scores) {
    decode_softmax const weights;
    weigh_rows_with_headroom<scores_type<Tokens>>(cuda_warp{}, weights, scores, softmax,
                                                  [&](row_values<float>& factors) { rescale(factors); });
  }

  /// Adds the products of queries and 16-bit keys, 16 tokens a tile. `keys(row, strip, half)`: where eight channels of
  /// a token lie.
  template <class T, class Scores, class Keys>
  __device__ __forceinline__ static void add_keys(Scores& scores, std::uint32_t const (&queries)[strips][2],
                                                  Keys const& keys, int lane) {
    constexpr int tiles = static_cast<int>(sizeof(scores.values[0]) / sizeof(scores.values[0][0]));
#pragma unroll
    for (int strip = 0; strip < strips; ++strip) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        std::uint32_t operand[4];
        load_matrix_x4(operand, keys(16 * tile + lane % 16, strip, lane / 16));
        warp_mma<T>::multiply(scores.values[0][tile], operand, queries[strip]);
      }
    }
  }
  /// Adds the products of weights and 16-bit values, 16 tokens a tile. `values(row, strip, half)`: where eight channels
  /// of a token lie.
  template <class T, int Tokens, class Values>
  __device__ __forceinline__ static void add_values(typename outputs_type::sum_tile& sums,
                                                    operands_type<T, Tokens> const& weights, Values const& values,
                                                    int lane) {
#pragma unroll
    for (int tile = 0; tile < Tokens / 16; ++tile) {
#pragma unroll
      for (int strip = 0; strip < strips; ++strip) {
        std::uint32_t operand[4];
        load_matrix_x4_transposed(operand, values(16 * tile + lane % 8 + lane / 16 * 8, strip, lane / 8 % 2));
        warp_mma<T>::multiply(sums.values[0][strip], operand, weights.words[tile][0]);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
