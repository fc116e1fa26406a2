// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `write_loss_gradient`: the epilogue of gemm_on_warpgroups that makes the gradient of a loss by its logits, for a part
/// of the vocabulary, and says which blocks of 128 tokens x 128 entries count: the first half of linear_loss's backward
/// pass on sm_90a. Equations: loss_gradient_tiles.hpp.
///
/// Logits are made again in fp32 registers and become gradients there. These are rounded once and written by the copy
/// engine, while the next tile is multiplied. Rows are all tokens, those without a label too, which get zeros.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/linear_map.hpp>
#include <tessera/program/loss_block_lists.hpp>
#include <tessera/program/loss_gradient_tiles.hpp>
#include <tessera/program/loss_logits.hpp>
#include <tessera/program/loss_token_factors.hpp>
#include <tessera/program/store_sums.cuh>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

template <class T>
struct write_loss_gradient {
  using boxes = store_sums_by_boxes<T, plain_sum>;
  using scratch_type = typename boxes::scratch_type;
  template <int Registers>
  using deferred_type = typename boxes::template deferred_type<Registers>;

  boxes target;  ///< tokens x entries of the part
  loss_part_range range;
  array_view<loss_token_factors const> tokens;
  logit_map<T> map;
  std::int32_t const* order;  ///< the entry in each place of the backward pass; null: their own order
  gradient_thresholds thresholds;
  float smoothing;
  float inverse_vocabulary;
  bool has_entropies;                             ///< some token has a gradient by its entropy
  matrix_view<std::uint8_t> kept_for_hidden;      ///< blocks of tokens x blocks of the part
  matrix_view<std::uint8_t> kept_for_classifier;  ///< likewise

  __device__ __forceinline__ void prepare() const { target.prepare(); }
  __device__ __forceinline__ void finish() const { target.finish(); }

  template <int Registers>
  __device__ __forceinline__ void defer(float (&sums)[Registers], box_place place,
                                        deferred_type<Registers>& deferred) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const tile_part part{place.row, place.column, static_cast<std::int32_t>(range.width()) - place.column,
                         2 * (lane % 4)};
    const row_factors rows[2] = {row_of(place.row + lane / 4, part), row_of(place.row + lane / 4 + 8, part)};
    make_logits(sums, part);
    const bool has_label = rows[0].has_label(2 * Registers) || rows[1].has_label(2 * Registers);
    const bool is_special = map.cap > 0.0F || smoothing != 0.0F || has_entropies || part.width < 2 * Registers;
    if (__any_sync(0xffffffffU, is_special || has_label)) {
      differentiate<false>(sums, rows, part, deferred);
    } else {
      differentiate<true>(sums, rows, part, deferred);
    }
  }

  template <int Half, int Registers>
  __device__ __forceinline__ void run_deferred(deferred_type<Registers> const& deferred, box_place place,
                                               scratch_type& scratch) const {
    target.template run_deferred<Half>(deferred, place, scratch);
  }

 private:
  struct tile_part {
    std::int32_t row;     ///< the warp's first token
    std::int32_t column;  ///< the tile's first entry, in the part
    std::int32_t width;   ///< entries from there on that exist
    std::int32_t lane;    ///< the lane's first column
  };

  /// Of a lane's row.
  struct row_factors {
    float log_sum_exp;
    float by_softmax;
    float by_loss;
    float by_entropy;
    float entropy;
    std::int32_t label;  ///< its column, counted from the tile's first
    bool is_used;

    __device__ __forceinline__ bool has_label(std::int32_t columns) const { return label >= 0 && label < columns; }
  };

  __device__ __forceinline__ row_factors row_of(std::int32_t token, tile_part const& part) const {
    if (token >= tokens.size()) {
      return {0.0F, 0.0F, 0.0F, 0.0F, 0.0F, -1, false};
    }
    const auto* const halves = reinterpret_cast<float4 const*>(&tokens[token]);
    const float4 first = halves[0];
    const auto label = bit_cast<std::int32_t>(first.w);
    const auto before = static_cast<std::int32_t>(range.first) + part.column;
    row_factors found{first.x, first.y, first.z, 0.0F, 0.0F, label < 0 ? -1 : label - before, label >= 0};
    if (has_entropies) {
      const float4 second = halves[1];
      found.by_entropy = second.x;
      found.entropy = second.y;
    }
    return found;
  }

  /// But for the temperature.
  template <int Registers>
  __device__ __forceinline__ void make_logits(float (&sums)[Registers], tile_part const& part) const {
    if (map.bias.data != nullptr) {
#pragma unroll
      for (int i = 0; i < Registers; i += 4) {
        if (i % 32 == 0) {
          __syncwarp();  // so that not all of the bias is read at once: there is no room for it
        }
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const std::int32_t at = part.lane + i / 4 * 8 + side;
          const float bias = at < part.width ? static_cast<float>(load(map.bias[entry_at(part.column + at)])) : 0.0F;
          sums[i + side] += bias;
          sums[i + 2 + side] += bias;
        }
      }
    }
    if (map.cap > 0.0F) {
#pragma unroll
      for (int i = 0; i < Registers; ++i) {
        sums[i] = map.capped(sums[i]);
      }
    }
  }

  __device__ __forceinline__ std::int64_t entry_at(std::int32_t column) const {
    return order != nullptr ? order[range.first + column] : range.first + column;
  }

  /// 64 columns at a time. IsPlain: there is no label among them, and nothing else that is not in every gradient.
  template <bool IsPlain, int Registers>
  __device__ __forceinline__ void differentiate(float const (&sums)[Registers], row_factors const (&rows)[2],
                                                tile_part const& part, deferred_type<Registers>& deferred) const {
#pragma unroll
    for (int block = 0; block < Registers / 64; ++block) {
      float largest = 0.0F;
#pragma unroll
      for (int first = 32 * block; first < 32 * (block + 1); first += 16) {
        std::uint32_t words[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          row_factors const& row = rows[i % 2];
          const std::int32_t column = part.lane + (first + i) / 2 * 8;
          const int reg = 2 * (first + i);
          const float low = gradient_of<IsPlain>(sums[reg], row, column, part.width, largest);
          const float high = gradient_of<IsPlain>(sums[reg + 1], row, column + 1, part.width, largest);
          words[i] = pack_pair<T>(low, high);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          deferred.words[first + i] = words[i];
        }
      }
      keep_block(largest, part.row, part.column + 128 * block);
    }
  }

  template <bool IsPlain>
  __device__ __forceinline__ float gradient_of(float sum, row_factors const& row, std::int32_t column,
                                               std::int32_t width, float& largest) const {
    constexpr float log2_e = 1.442695041F;
    const float logit = sum * map.inverse_temperature;
    const float log_softmax = logit - row.log_sum_exp;
    const float softmax = fast_exp2(log_softmax * log2_e);
    float apart = softmax;
    float gradient = row.by_softmax * softmax;
    if constexpr (IsPlain) {
      gradient *= map.inverse_temperature;
    } else {
      const float spread = smoothing * inverse_vocabulary;
      const float wanted = column == row.label ? 1.0F - smoothing + spread : spread;
      apart = absolute(softmax - wanted);
      const float information = softmax == 0.0F ? 0.0F : softmax * (log_softmax + row.entropy);
      gradient = (gradient - row.by_loss * wanted - row.by_entropy * information) * map.slope(logit);
    }
    if (!row.is_used || (!IsPlain && column >= width)) {
      return 0.0F;
    }
    largest = maximum_or_nan(largest, apart);
    return gradient;
  }

  /// A block is kept for all of its tokens if one of them wants it.
  __device__ __forceinline__ void keep_block(float largest, std::int32_t row, std::int32_t column) const {
    const bool for_hidden = __any_sync(0xffffffffU, !(largest < thresholds.hidden)) != 0;
    const bool for_classifier = __any_sync(0xffffffffU, !(largest < thresholds.classifier)) != 0;
    if (threadIdx.x % 32 == 0 && column < range.width() && row < tokens.size()) {
      if (for_hidden) {
        kept_for_hidden(row / 128, column / 128) = 1;
      }
      if (for_classifier) {
        kept_for_classifier(row / 128, column / 128) = 1;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
