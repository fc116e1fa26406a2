// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `reduce_loss_rows`: the epilogue of gemm_on_warpgroups that makes log-sum-exps of a classifier's logits and picks
/// the logits of labels: linear_loss's forward program for sm_90a, which takes its tiles from a row_schedule.
///
/// Logits stay in fp32 registers. Of each row a warp keeps, in shared memory, what it has reduced so far of its share
/// of the vocabulary, and writes it once: there are `splits` states for each token, merged by finish_loss_tokens in
/// order. So the order of additions depends on the extents and on the number of multiprocessors alone.
///
/// Within a tile a lane takes the largest of its row with the three others that hold the row, then adds up exponentials
/// relative to it from the first to its last column; the lanes' sums are added as neighbours, then as pairs.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/loss_logits.hpp>
#include <tessera/program/loss_tokens.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
struct reduce_loss_rows {
  using state_type = scaled_exponentials<float>;
  struct scratch_type {
    state_type of_row[16];
  };

  row_schedule schedule;
  loss_token_list tokens;
  matrix_view<state_type> states;  ///< splits x rows of the list
  array_view<float> targets;
  logit_map<T> map;
  std::int32_t vocabulary;

  __device__ __forceinline__ void prepare() const {}
  __device__ __forceinline__ void finish() const {}

  /// Register 4 j + 2 h + i: row lane / 4 + 8 h, column 8 j + 2 (lane % 4) + i.
  template <int Registers>
  __device__ __forceinline__ void operator()(float (&sums)[Registers], box_place place, scratch_type& scratch) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const std::int32_t column = place.column + 2 * (lane % 4);
    const std::int64_t own[2] = {row_of(place.row + lane / 4), row_of(place.row + lane / 4 + 8)};
    const std::int32_t labels[2] = {label_of(own[0]), label_of(own[1])};
    map_sums(sums, column);
    float target[2] = {0.0F, 0.0F};
    float largest[2] = {-infinity, -infinity};
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      const int half = i / 2 % 2;
      const std::int32_t at = column + i / 4 * 8 + i % 2;
      largest[half] = maximum(largest[half], sums[i]);
      target[half] = at == labels[half] ? sums[i] : target[half];
    }
    const state_type upper = sum_exponentials(sums, largest[0], 0);
    const state_type lower = sum_exponentials(sums, largest[1], 1);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t beyond = labels[half] - column;
      if (beyond >= 0 && beyond < 2 * Registers && beyond % 8 < 2) {
        targets[own[half]] = target[half];
      }
    }
    const bool is_lower = lane % 4 == 1;
    keep({is_lower ? lower.largest : upper.largest, is_lower ? lower.scaled : upper.scaled}, is_lower ? own[1] : own[0],
         place.column / (2 * Registers), scratch);
  }

 private:
  __device__ __forceinline__ std::int64_t row_of(std::int32_t token) const {
    return token < tokens.row_of.size() ? tokens.row_of[token] : -1;
  }
  /// -1 for none, which is no column.
  __device__ __forceinline__ std::int32_t label_of(std::int64_t row) const {
    return row >= 0 ? tokens.labels[row] : -1;
  }

  /// Sums become logits; those beyond the vocabulary minus infinity.
  template <int Registers>
  __device__ __forceinline__ void map_sums(float (&sums)[Registers], std::int32_t column) const {
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
#pragma unroll
      for (int i = 0; i < Registers; ++i) {
        sums[i] = capped(sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      sums[i] = column + i / 4 * 8 + i % 2 < vocabulary ? sums[i] * map.inverse_temperature : -infinity;
    }
  }

  /// cap * tanh(sum / cap) by one exponential: within 2e-7 of the cap.
  __device__ __forceinline__ float capped(float sum) const {
    constexpr float twice_log2_e = 2.885390082F;
    return map.cap * (1.0F - 2.0F / (exp2(sum / map.cap * twice_log2_e) + 1.0F));
  }

  template <int Registers>
  __device__ __forceinline__ static state_type sum_exponentials(float const (&sums)[Registers], float largest,
                                                                int half) {
    constexpr float log2_e = 1.442695041F;
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      largest = maximum(largest, detail::move_words(largest, detail::across{distance}));
    }
    const float reference = largest == -infinity ? 0.0F : largest;
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      if (i / 2 % 2 == half) {
        sum += exp2((sums[i] - reference) * log2_e);
      }
    }
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      sum += detail::move_words(sum, detail::across{distance});  // the same bits for both: a sum of two commutes
    }
    return {largest, sum};
  }

  /// By lanes 0 and 1 of each four, for their row and the one 8 further.
  __device__ __forceinline__ void keep(state_type const& found, std::int64_t row, std::int32_t tile,
                                       scratch_type& scratch) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    if (lane % 4 > 1) {
      return;
    }
    state_type& kept = scratch.of_row[lane / 4 + 8 * (lane % 4)];
    state_type total = found;
    if (!schedule.is_first(tile)) {
      total = kept;
      lse_reducer<float>{}.merge(total, found);
    }
    kept = total;
    if (schedule.is_last(tile) && row >= 0) {
      states(schedule.split_of(tile), row) = total;
    }
  }
};

}  // namespace v0
}  // namespace tessera
