// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Softmaxes over tiles of scores whose operands are not quantized, for tile/rows/weigh_rows.hpp: `sloped_softmax` for
/// warpgroups, and `sloped_headroom_softmax` for warps, whose references may be below the largest scores;
/// `lowest_headroom_softmax` and `placed_headroom_softmax` are the same for scores with terms. `slope` makes logits in
/// base 2 of scores. References of the first are the largest scores so far, as they are. For tile j,
///
///     M_j = max(M_(j-1), largest score)
///     P_j = 448 2^(slope (s - M_j))
///     O_j = 2^(slope (M_(j-1) - M_j)) O_(j-1) + P_j V_j
///
/// Weights are in units of 1 / 448, as those of attention/detail/forward_softmax.cuh are, so that both programs finish
/// and merge rows alike; in fp16 this also keeps weights that would be subnormal. Instructions for each score: a
/// maximum, a multiply-add, an exponential, an addition and half a conversion.
///
/// A NaN among a row's scores makes its weight NaN, and with it all that is added up. So does positive infinity.
/// Negative infinity has the weight 0.
#pragma once

#include <tessera/concepts/reducer.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/tile/cuda/exponential.cuh>

namespace tessera {
inline namespace v0 {

/// Sums of the first and of the second values of pairs, so that one addition does not wait for the other.
struct two_sums {
  float first;   ///< of values in even places
  float second;  ///< of values in odd places
};

/// The sum by two chains of additions.
struct two_sums_reducer {
  using state_type = two_sums;
  using input_type = float;

  TESSERA_FN constexpr state_type identity() const { return {0.0F, 0.0F}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const { state.first += value; }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    push_pair(into, other.first, other.second);
  }
  /// The state of two neighbouring values.
  TESSERA_FN constexpr state_type of_pair(input_type first, input_type second) const { return {first, second}; }
  /// Adds two neighbouring values, each to its own sum.
  TESSERA_FN constexpr void push_pair(state_type& state, input_type first, input_type second) const {
    state.first += first;
    state.second += second;
  }
};

static_assert(PairReducer<two_sums_reducer>);

/// The softmax of weigh_rows.
struct sloped_softmax {
  using largest_type = maximum_reducer<float>;        ///< a Reducer of a tile's scores
  using sum_type = two_sums_reducer;                  ///< a Reducer of a tile's weights
  static constexpr bool sums_whole_rows = false;      ///< lanes add up their own weights
  static constexpr float log2_of_top = 8.807354922F;  ///< of the largest weight, 448
  /// What is known of a row.
  struct state_type {
    float reference;  ///< M: the largest score so far
    float addend;     ///< of logits, so that the largest of the tile has the largest weight
    float total;      ///< the lane's part of the sum of weights
  };
  float slope;  ///< what scores are multiplied by to be in base 2

  __device__ __forceinline__ static state_type identity() { return {-infinity, 0.0F, 0.0F}; }
  /// Begins a tile whose largest score is given. Returns the factor of what was added up before.
  __device__ __forceinline__ float turn(state_type& state, float largest) const {
    float const next = fmaxf(state.reference, largest);
    float const zero = next == -infinity ? 0.0F : next;  // a row that has seen nothing yet has no reference
    float const factor = fast_exp2((state.reference - zero) * slope);
    state.addend = __fmaf_rn(-zero, slope, log2_of_top);
    state.reference = next;
    return factor;
  }
  /// The weight of a score, in units of 1 / 448.
  __device__ __forceinline__ float weight(state_type const& state, float score) const {
    return fast_exp2(__fmaf_rn(score, slope, state.addend));
  }
  __device__ __forceinline__ void add(state_type& state, float factor, two_sums const& sum) const {
    state.total = __fmaf_rn(state.total, factor, sum.first + sum.second);
  }
};

/// What the softmaxes of weigh_rows_with_headroom have in common. State: what a lane knows of a row, headroom_row or
/// placed_row.
template <class State>
struct headroom_softmax {
  using largest_type = maximum_reducer<float>;  ///< a Reducer of a tile's scores
  using sum_type = two_sums_reducer;            ///< a Reducer of a tile's weights
  using state_type = State;                     ///< what a lane knows of a row
  static constexpr float headroom = 8.0F;       ///< how far a logit may be above the reference
  float slope;                                  ///< what scores are multiplied by to be in base 2

  /// Whether a score is too far above the reference.
  __device__ __forceinline__ bool is_beyond(state_type const& state, float largest) const {
    return __fmaf_rn(largest, slope, -state.origin()) > headroom;
  }
  /// Nothing is left to agree on.
  __device__ __forceinline__ void agree() const {}
  /// Raises the reference to the row's largest logit. Returns the factor of what was added up before.
  __device__ __forceinline__ float raise(state_type& state, float largest) const {
    float const raised = fmaxf(state.reference, state.logit(largest, slope));
    float const factor = fast_exp2(state.reference - raised);
    state.reference = raised;
    state.settle();
    state.sum *= factor;
    return factor;
  }
  /// The weight of a score, relative to the reference: 2^headroom at most, or about that.
  __device__ __forceinline__ float weight(state_type const& state, float score) const {
    return fast_exp2(__fmaf_rn(score, slope, -state.origin()));
  }
  __device__ __forceinline__ void add(state_type& state, two_sums const& sum) const {
    state.sum += sum.first + sum.second;
  }
};

/// What a lane knows of a row.
struct headroom_row {
  float reference;  ///< what logits are relative to, the same in all lanes of the row
  float sum;        ///< the sum of the lane's weights

  /// What products of scores and the slope are relative to.
  [[nodiscard]] __device__ __forceinline__ float origin() const { return reference; }
  /// The logit of a score.
  [[nodiscard]] __device__ __forceinline__ static float logit(float score, float slope) { return score * slope; }
  /// Nothing depends on the reference.
  __device__ __forceinline__ void settle() const {}
};

/// The softmax of weigh_rows_with_headroom over products of queries and keys, which `slope` makes logits in base 2 of.
/// A NaN among a row's scores makes its weight NaN, and with it all that is added up; so does positive infinity.
/// Negative infinity has the weight 0.
struct sloped_headroom_softmax : headroom_softmax<headroom_row> {
  /// The state before the first key: its reference is below all finite logits, and its difference to itself is 0.
  __device__ __forceinline__ static state_type identity() { return {-3.0e38F, 0.0F}; }
};

/// sloped_headroom_softmax for scores with terms, which may be as low as a float.
struct lowest_headroom_softmax : headroom_softmax<headroom_row> {
  static constexpr float lowest = -3.40282347e+38F;  ///< the lowest finite float

  /// The state before the first key: no finite logit is below its reference.
  __device__ __forceinline__ static state_type identity() { return {lowest, 0.0F}; }
};

/// What a lane knows of a row whose scores lack an addend; the last two are for one tile.
struct placed_row {
  float reference;  ///< what logits are relative to, the same in all lanes of the row
  float sum;        ///< the sum of the lane's weights
  float addend;     ///< what the tile's logits lack
  float relative;   ///< the reference less the addend

  /// What products of scores and the slope are relative to.
  [[nodiscard]] __device__ __forceinline__ float origin() const { return relative; }
  /// The logit of a score.
  [[nodiscard]] __device__ __forceinline__ float logit(float score, float slope) const {
    return __fmaf_rn(score, slope, addend);
  }
  /// The reference is another one, or the addend.
  __device__ __forceinline__ void settle() { relative = fmaxf(reference - addend, lowest_headroom_softmax::lowest); }
};

/// sloped_headroom_softmax for rows whose scores lack an addend of the row, another one for each tile.
struct placed_headroom_softmax : headroom_softmax<placed_row> {
  /// The state before the first key.
  __device__ __forceinline__ static state_type identity() {
    constexpr float lowest = lowest_headroom_softmax::lowest;
    return {lowest, 0.0F, 0.0F, lowest};
  }
  /// Begins a tile whose logits lack an addend.
  __device__ __forceinline__ static void place(state_type& state, float addend) {
    state.addend = addend;
    state.settle();
  }
};

}  // namespace v0
}  // namespace tessera
