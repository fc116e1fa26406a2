// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `keep_loss_rows`: reduce_loss_rows (loss/reduce_logits.cuh) as the epilogue of gemm_ring, where it also keeps
/// softmaxes for the backward pass (loss/kept_softmaxes.hpp), from sm_80 on. It is a program of its own, so that the
/// one that keeps nothing has none of its instructions.
///
/// A warp has 64 columns of a tile's row, and takes the reference that the token's tiles share, or its columns' largest
/// logit, which it writes into the signs of its values (detail/signed_references.hpp). The four lanes of a row exchange
/// words, so that each writes 16 bytes.
///
/// Cost beside the reduction: 2 bytes of memory traffic, an exponential and about 4 other instructions for each logit,
/// of types that share no references 6.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/signed_references.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/reduce_logits.cuh>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/row_fold.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// T: a type of 16 bits. RowWarps: how many warps have parts of a tile's row.
template <class T, LogitReducer R, int RowWarps>
struct keep_loss_rows : reduce_loss_rows<T, R, identity_logits, RowWarps> {
  using base = reduce_loss_rows<T, R, identity_logits, RowWarps>;
  using typename base::scratch_type;
  static_assert(sizeof(T) == 2 && RowWarps > 1);

  /// Reduces 16 rows of a warp's sums, and keeps their softmaxes.
  template <int Registers>
  __device__ __forceinline__ void operator()(float (&sums)[Registers], box_coordinate coordinate, scratch_type& scratch,
                                             std::int32_t index) const {
    static_assert(2 * Registers % detail::signed_reference::values == 0);
    base::operator()(sums, coordinate, scratch, index);
    if (!this->schedule.split_at(index).is_there || coordinate.column >= this->softmaxes.values.extent(1)) {
      return;
    }
    using rows = warpgroup_rows<float, 2 * Registers>;
    typename rows::template row_values<float> largest{{{-infinity, -infinity}}};
    rows::reduce_rows(warpgroup_lane::in_warp(thread_index()), maximum_reducer<float>{}, sums, largest);
    float const bend = this->scaling.cap > 0.0F ? fast_reciprocal(this->scaling.cap) : 0.0F;
    bool const is_bent = this->scaling.cap > 0.0F;
    float const steepness = this->scaling.inverse_temperature * log2_e;
    if (is_bent) {
      keep(sums, largest.values[0], coordinate, scratch, [=](float sum, float reference) {
        float const bent = sum * bend;
        float const slope = fmaxf(multiply_add(-bent, bent, 1.0F), 0.0F);  // signs are not the values'
        return fast_exp2(multiply_add(sum, steepness, -reference)) * slope;
      });
    } else {
      keep(sums, largest.values[0], coordinate, scratch,
           [=](float sum, float reference) { return fast_exp2(multiply_add(sum, steepness, -reference)); });
    }
  }

 private:
  static constexpr float log2_e = 1.442695041F;
  static constexpr int group_columns = detail::signed_reference::values;

  /// What values of a row are relative to.
  struct row_reference {
    float value;
    std::uint32_t signs;  ///< what goes into the values' signs
  };
  __device__ __forceinline__ row_reference reference_of(float largest, std::int32_t token) const {
    float const steepness = this->scaling.inverse_temperature * log2_e;
    auto const& kept = this->softmaxes;
    if constexpr (kept_softmaxes<T>::shares_references) {
      float const shared = kept.shared_references[token];
      if (multiply_add(largest, steepness, -shared) <= kept_softmaxes<T>::most_above) {
        return {shared, 0U};
      }
      kept.is_uneven[token] = 1;
    }
    return {reference_of_row(largest, steepness), detail::signed_reference::bits_of(largest * steepness)};
  }

  /// Keeps what `value` makes of each sum and its row's reference.
  template <int Registers, class Value>
  __device__ __forceinline__ void keep(float const (&sums)[Registers], float const (&largest)[2],
                                       box_coordinate coordinate, scratch_type const& scratch,
                                       Value const& value) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::int32_t const token = coordinate.row + lane / 4 + 8 * half;
      bool const is_there = token < this->softmaxes.values.extent(0);
      bool const has_label = scratch.of_row[lane / 4 + 8 * half].label >= 0;
      row_reference const reference =
          is_there && has_label ? reference_of(largest[half], token) : row_reference{0.0F, 0U};
      bool const has_signs = !kept_softmaxes<T>::shares_references || any_of_warp(reference.signs != 0);
#pragma unroll
      for (int group = 0; group < 2 * Registers / group_columns; ++group) {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int const at = group * group_columns / 2 + 4 * i + 2 * half;
          std::uint32_t const pair =
              pack_pair<T>(value(sums[at], reference.value), value(sums[at + 1], reference.value));
          words[i] = has_label ? pair : 0U;
        }
        transpose_of_four(words);
        if (has_signs) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            words[i] = detail::signed_reference::put(words[i], reference.signs, lane % 4 * 4 + i);
          }
        }
        // All values of a group are written, since any may have signs.
        std::int32_t const first = coordinate.column + group * group_columns;
        if (is_there && first < this->softmaxes.values.extent(1)) {
          __stcs(reinterpret_cast<uint4*>(&this->softmaxes.values(token, first + 8 * (lane % 4))),
                 uint4{words[0], words[1], words[2], words[3]});
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
