// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `reduce_loss_rows`: the epilogue of gemm_on_warpgroups that makes log-sum-exps of a classifier's logits and picks
/// the logits of labels: linear_loss's forward program for sm_90a, which takes its tiles from a row_schedule.
///
/// Logits stay in fp32 registers. Of each row a warp keeps, in shared memory, what it has reduced so far of its share
/// of the vocabulary, and writes it once: there are `schedule.states()` states for each token, merged by
/// finish_loss_tokens in order. So the order of additions depends on the extents and on the number of multiprocessors
/// alone; launches that each do some of the schedule's steps give the same bits as one.
///
/// Within a tile a lane takes the largest of its row with the three others that hold the row, then adds up exponentials
/// relative to it from the first to its last column; the lanes' sums are added as neighbours, then as pairs.
///
/// Instructions for each sum of a lane: a maximum, a multiply-add to the exponent, an exponential, an addition. The
/// exponential takes a quarter of a multiprocessor's scheduler for 8 cycles: 1024 cycles a tile for a warp of 16 x 256
/// sums, against 144 for each 16 of depth that a warpgroup multiplies. All that few tiles need, tests of bounds and
/// labels, is behind a branch of the warp.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/loss_logits.hpp>
#include <tessera/program/loss_marks.hpp>
#include <tessera/program/loss_tokens.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
struct reduce_loss_rows {
  using state_type = scaled_exponentials<float>;
  /// Of a row, from tile to tile.
  struct memory_type {
    state_type state;
    loss_bound bound;
    float others;        ///< log2 of the sum that other workers had when this launch began
    std::int32_t label;  ///< -1 for none, which is no column
  };
  struct scratch_type {
    memory_type of_row[16];
  };

  row_schedule schedule;
  loss_token_list tokens;
  matrix_view<state_type> states;  ///< schedule.states() x rows of the list
  array_view<float> targets;
  logit_map<T> map;
  std::int32_t vocabulary;
  loss_marks marks;

  __device__ __forceinline__ void prepare() const {}
  __device__ __forceinline__ void finish() const {}

  /// Register 4 j + 2 h + i: row lane / 4 + 8 h, column 8 j + 2 (lane % 4) + i.
  template <int Registers>
  __device__ __forceinline__ void operator()(float (&sums)[Registers], box_place place, scratch_type& scratch,
                                             std::int32_t index) const {
    const row_share share = schedule.share_at(index);
    if (!share.is_there) {
      return;
    }
    if (share.before == 0 || index < schedule.workers) {
      open(share, place.row, scratch);
    }
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    map_sums(sums, place.column);
    float largest_of_group[2][groups<Registers>];
    find_largest(sums, largest_of_group);
    const state_type found = reduce_tile(sums, largest_of_group);
    pick_targets(sums, place, scratch);
    memory_type& kept = scratch.of_row[own_row()];
    state_type total = found;
    if (share.before > 0) {
      total = merged(kept.state, found);
    }
    __syncwarp();  // lanes 2 and 3 of each four have read what 0 and 1 overwrite
    if (marks.are_wanted()) {
      mark(sums, largest_of_group, place, update_bound(share, found, total, kept), scratch);
    }
    if (lane % 4 < 2) {
      kept.state = total;
    }
    __syncwarp();
    if (share.is_last || index + schedule.workers >= schedule.count()) {
      close(share, place.row, scratch);
    }
  }

 private:
  static constexpr float log2_e = 1.442695041F;
  static constexpr int group_columns = 32;  ///< whose marks are one word
  template <int Registers>
  static constexpr int groups = 2 * Registers / group_columns;

  /// Of the two rows that a lane has sums of, the one of which it keeps the state; lanes 0 and 2 of four have the same.
  __device__ __forceinline__ static std::int32_t own_row() {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    return lane / 4 + 8 * (lane % 2);
  }
  __device__ __forceinline__ std::int64_t row_of(std::int32_t token) const {
    return token < tokens.row_of.size() ? tokens.row_of[token] : -1;
  }

  /// Before the first tile of a share, or of a launch that goes on with it.
  __device__ __forceinline__ void open(row_share const& share, std::int32_t first_row, scratch_type& scratch) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    if (lane < 16) {
      const std::int64_t row = row_of(first_row + lane);
      memory_type memory{{-infinity, 0.0F}, {infinity, -infinity}, -infinity, row >= 0 ? tokens.labels[row] : -1};
      if (row >= 0 && schedule.first_step > 0) {
        if (share.before > 0) {
          memory.state = states(share.split, row);
          memory.bound = marks.are_wanted() ? marks.bounds(share.split, row) : memory.bound;
        }
        if (marks.are_wanted()) {
          learn_from_others(share, row, memory);
        }
      }
      scratch.of_row[lane] = memory;
    }
    __syncwarp();
  }
  /// What the workers that share the row had seen of it when this launch began; not those of tails.
  __device__ __forceinline__ void learn_from_others(row_share const& share, std::int64_t row,
                                                    memory_type& memory) const {
    state_type sum{-infinity, 0.0F};
    for (std::int32_t split = 0; split < (schedule.turns == 0 ? schedule.splits : 0); ++split) {
      if (split != share.split) {
        sum = merged(sum, states(split, row));
        memory.bound.least = minimum(memory.bound.least, marks.bounds(split, row).least);
      }
    }
    memory.others = log2_of(sum);
  }
  /// After the last one.
  __device__ __forceinline__ void close(row_share const& share, std::int32_t first_row,
                                        scratch_type const& scratch) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const std::int64_t row = lane < 16 ? row_of(first_row + lane) : -1;
    if (row < 0) {
      return;
    }
    states(share.split, row) = scratch.of_row[lane].state;
    if (marks.are_wanted()) {
      marks.bounds(share.split, row) = scratch.of_row[lane].bound;
    }
    for (std::int32_t i = 1; i <= share.workless; ++i) {
      states(share.split + i, row) = {-infinity, 0.0F};
      if (marks.are_wanted()) {
        marks.bounds(share.split + i, row) = {infinity, -infinity};
      }
    }
  }

  /// Sums become logits but for the temperature; those beyond the vocabulary minus infinity.
  template <int Registers>
  __device__ __forceinline__ void map_sums(float (&sums)[Registers], std::int32_t first_column) const {
    const std::int32_t column = first_column + 2 * static_cast<std::int32_t>(threadIdx.x % 4);
    if (map.bias.data != nullptr) {
#pragma unroll
      for (int i = 0; i < Registers; i += 4) {
        if (i % 32 == 0) {
          __syncwarp();  // so that not all of the bias is read at once: there is no room for it
        }
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const std::int32_t at = column + i / 4 * 8 + side;
          const float bias = at < vocabulary ? static_cast<float>(load(map.bias[at])) : 0.0F;
          sums[i + side] += bias;
          sums[i + 2 + side] += bias;
        }
      }
    }
    if (map.cap > 0.0F) {
      const float factor = 2.0F * log2_e * fast_reciprocal(map.cap);
#pragma unroll
      for (int i = 0; i < Registers; ++i) {
        sums[i] = map.cap - 2.0F * map.cap * fast_reciprocal(fast_exp2(sums[i] * factor) + 1.0F);  // cap * tanh
      }
    }
    if (first_column + 2 * Registers > vocabulary) {
#pragma unroll
      for (int i = 0; i < Registers; ++i) {
        sums[i] = column + i / 4 * 8 + i % 2 < vocabulary ? sums[i] : -infinity;
      }
    }
  }

  /// Of each row a lane's largest sum of each 32 columns.
  template <int Registers>
  __device__ __forceinline__ static void find_largest(float const (&sums)[Registers],
                                                      float (&largest)[2][groups<Registers>]) {
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      constexpr int group_registers = group_columns / 2;
      float& group = largest[i / 2 % 2][i / group_registers];
      const bool is_first_of_row = i % group_registers == 0 || i % group_registers == 2;
      group = is_first_of_row ? sums[i] : maximum(group, sums[i]);
    }
  }

  /// The state of the lane's own row in this tile. Exponents are found by one multiply-add, which rounds the subtrahend
  /// for all alike: that is made good for their sum, whose largest addend is 1.
  template <int Registers>
  __device__ __forceinline__ state_type reduce_tile(float const (&sums)[Registers],
                                                    float const (&largest_of_group)[2][groups<Registers>]) const {
    const float factor = map.inverse_temperature * log2_e;
    float largest[2];
    float subtrahend[2];
    float sum[2] = {0.0F, 0.0F};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = largest_of_group[half][0];
#pragma unroll
      for (int group = 1; group < groups<Registers>; ++group) {
        largest[half] = maximum(largest[half], largest_of_group[half][group]);
      }
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2) {
        largest[half] = maximum(largest[half], detail::move_words(largest[half], detail::across{distance}));
      }
      subtrahend[half] = largest[half] == -infinity ? 0.0F : largest[half] * factor;
    }
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      sum[i / 2 % 2] += fast_exp2(multiply_add(sums[i], factor, -subtrahend[i / 2 % 2]));
    }
    const bool is_lower = threadIdx.x % 2 != 0;
    const float own_largest = is_lower ? largest[1] : largest[0];
    float own = (is_lower ? sum[1] : sum[0]) + detail::move_words(is_lower ? sum[0] : sum[1], detail::across{1});
    own += detail::move_words(own, detail::across{2});  // the same bits for both: a sum of two commutes
    if (own_largest > -infinity) {
      own *= fast_exp2(-multiply_add(own_largest, factor, -(own_largest * factor)));
      own = own < 1.0F ? 1.0F : own;
    }
    return {own_largest * map.inverse_temperature, own};
  }

  /// As lse_reducer merges; with 1 for the relation of equal infinities.
  __device__ __forceinline__ static state_type merged(state_type const& a, state_type const& b) {
    const float largest = maximum(a.largest, b.largest);
    const float lesser = minimum(a.largest, b.largest);
    const float relation = lesser == largest ? 1.0F : fast_exp2((lesser - largest) * log2_e);
    return {largest, a.largest >= b.largest ? multiply_add(b.scaled, relation, a.scaled)
                                            : multiply_add(a.scaled, relation, b.scaled)};
  }
  __device__ __forceinline__ static float log2_of(state_type const& state) {
    return state.largest * log2_e + fast_log2(state.scaled);
  }

  /// Writes the logits of labels that are in this tile.
  template <int Registers>
  __device__ __forceinline__ void pick_targets(float const (&sums)[Registers], box_place place,
                                               scratch_type const& scratch) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const std::int32_t column = place.column + 2 * (lane % 4);
    const std::int32_t beyond[2] = {scratch.of_row[lane / 4].label - column,
                                    scratch.of_row[lane / 4 + 8].label - column};
    const auto is_here = [](std::int32_t at) { return at >= 0 && at < 2 * Registers && at % 8 < 2; };
    if (!__any_sync(detail::whole_warp, is_here(beyond[0]) || is_here(beyond[1]))) {
      return;
    }
    float target[2] = {0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      target[i / 2 % 2] = beyond[i / 2 % 2] == i / 4 * 8 + i % 2 ? sums[i] : target[i / 2 % 2];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (is_here(beyond[half])) {
        targets[row_of(place.row + lane / 4 + 8 * half)] = target[half] * map.inverse_temperature;
      }
    }
  }

  /// The sum below which nothing of the lane's own row matters: a bound of the log-sum-exp and the threshold.
  __device__ __forceinline__ float update_bound(row_share const& share, state_type const& found,
                                                state_type const& total, memory_type& kept) const {
    constexpr float caution = 0.8F;  // sampled tiles of equal sums can all be a little above the mean
    const std::int32_t others =
        schedule.turns > 0 ? 0 : schedule.first_step * (schedule.splits - (share.split < schedule.splits ? 1 : 0));
    const std::int32_t seen = others + share.before + 1;
    const auto left = static_cast<float>(max(schedule.columns - seen, 0));
    const float least = minimum(kept.bound.least, log2_of(found));
    const float guess = seen >= row_schedule::samples ? least + fast_log2(caution * left) : -infinity;
    const float sum = log2_of(total);
    const float largest = maximum(maximum(sum, kept.others), guess);
    const float bound = largest == -infinity
                            ? -infinity
                            : largest + fast_log2(fast_exp2(sum - largest) + fast_exp2(kept.others - largest) +
                                                  fast_exp2(guess - largest));
    const bool is_labelled = kept.label >= 0;
    const float highest = maximum(kept.bound.highest, bound);
    __syncwarp();
    if (threadIdx.x % 4 < 2) {
      kept.bound = {least, highest};
    }
    const float lowered = bound - (loss_marks::slack + loss_marks::relative_slack * absolute(bound));
    return is_labelled ? (lowered + fast_log2(marks.threshold)) * fast_reciprocal(map.inverse_temperature * log2_e)
                       : infinity;
  }

  /// `own_bound`: of the lane's own row; the other one's is the neighbour's.
  template <int Registers>
  __device__ __forceinline__ void mark(float const (&sums)[Registers],
                                       float const (&largest_of_group)[2][groups<Registers>], box_place place,
                                       float own_bound, scratch_type const& scratch) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const float other_bound = detail::move_words(own_bound, detail::across{1});
    const bool is_lower = lane % 2 != 0;
    const float bound[2] = {is_lower ? other_bound : own_bound, is_lower ? own_bound : other_bound};
    const bool counts[2] = {scratch.of_row[lane / 4].label >= 0, scratch.of_row[lane / 4 + 8].label >= 0};
#pragma unroll
    for (int group = 0; group < groups<Registers>; ++group) {
      const bool may_matter = (counts[0] && !(largest_of_group[0][group] < bound[0])) ||
                              (counts[1] && !(largest_of_group[1][group] < bound[1]));
      if (__any_sync(detail::whole_warp, may_matter)) {
        std::uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < group_columns / 2; ++i) {
          const bool matters = counts[i / 2 % 2] && !(sums[group * group_columns / 2 + i] < bound[i / 2 % 2]);
          word |= matters ? std::uint32_t{1} << (i / 4 * 8 + i % 2) : 0;
        }
        add_word(place, group, __reduce_or_sync(detail::whole_warp, word << (2 * (lane % 4))));
      }
    }
  }
  __device__ __forceinline__ void add_word(box_place place, int group, std::uint32_t word) const {
    const std::int32_t column = place.column + group * group_columns;
    const std::int32_t left = vocabulary - column;
    const std::uint32_t inside = left >= 32 ? word : left > 0 ? word & ((std::uint32_t{1} << left) - 1) : 0;
    if (threadIdx.x % 32 == 0 && inside != 0) {
      atomicOr(&marks.live(place.row / loss_marks::block_tokens, column / group_columns), inside);
    }
  }
};

}  // namespace v0
}  // namespace tessera
