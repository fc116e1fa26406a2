// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `write_loss_gradient`: the epilogue of gemm_in_turns that makes the gradient of a loss by its logits, for a part
/// of the vocabulary, and says which blocks of 128 tokens x 128 entries count: the first half of linear_loss's backward
/// pass on sm_90a. Equations: loss_gradient_tiles.hpp.
///
/// Logits are made again in fp32 registers and become gradients there. These are rounded once and written by the copy
/// engine. Rows are all tokens, those without a label too, which get zeros.
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
#include <tessera/tile/cuda/load_matrix.cuh>
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
  __device__ __forceinline__ void operator()(float (&sums)[Registers], box_place place, scratch_type& scratch,
                                             std::int32_t) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const auto before = static_cast<std::int32_t>(range.first) + place.column;
    tile_part part{place, static_cast<std::int32_t>(range.width()) - place.column, 2 * (lane % 4),
                   {row_of(place.row + lane / 4), row_of(place.row + lane / 4 + 8)},
                   {}};
    bool is_special = map.cap > 0.0F || smoothing != 0.0F || has_entropies || part.width < 2 * Registers;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t label = part.rows[half].label;
      part.label[half] = label - before;
      is_special = is_special || label < 0 || (part.label[half] >= 0 && part.label[half] < 2 * Registers);
    }
    make_logits(sums, part);
    if (__any_sync(0xffffffffU, is_special)) {
      differentiate<kind::special>(sums, part, scratch);
    } else if (thresholds.hidden > 0.0F || thresholds.classifier > 0.0F) {
      differentiate<kind::filtered>(sums, part, scratch);
    } else {
      differentiate<kind::exact>(sums, part, scratch);
    }
  }

 private:
  /// Tiles of which nothing needs to be known but softmaxes, and their largest, and tiles that have more: a label, the
  /// end of the vocabulary, rows without a gradient, or options.
  enum class kind { exact, filtered, special };

  /// Of a lane's row.
  struct row_factors {
    float log_sum_exp;
    float by_softmax;
    float by_loss;
    std::int32_t label;  ///< its place in the backward pass; -1: the row has no gradient
  };
  struct tile_part {
    box_place place;        ///< the warp's first token, the tile's first entry in the part
    std::int32_t width;     ///< entries from there on that exist
    std::int32_t lane;      ///< the lane's first column
    row_factors rows[2];    ///< row lane / 4 of the warp's and the one 8 further
    std::int32_t label[2];  ///< columns of their labels, counted from the tile's first
  };

  __device__ __forceinline__ row_factors row_of(std::int32_t token) const {
    if (token >= tokens.size()) {
      return {0.0F, 0.0F, 0.0F, -1};
    }
    const float4 words = *reinterpret_cast<float4 const*>(&tokens[token]);
    return {words.x, words.y, words.z, bit_cast<std::int32_t>(words.w)};
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
          const float bias = at < part.width ? static_cast<float>(load(map.bias[entry_at(part.place.column + at)])) : 0.0F;
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

  /// A box of 64 columns at a time.
  template <kind Kind, int Registers>
  __device__ __forceinline__ void differentiate(float const (&sums)[Registers], tile_part const& part,
                                                scratch_type& scratch) const {
    constexpr float log2_e = 1.442695041F;
    const float steepness = map.inverse_temperature * log2_e;
    const float shift[2] = {part.rows[0].log_sum_exp * log2_e, part.rows[1].log_sum_exp * log2_e};
    const float factor[2] = {part.rows[0].by_softmax * map.inverse_temperature,
                             part.rows[1].by_softmax * map.inverse_temperature};
    const auto lane = static_cast<std::uint32_t>(threadIdx.x % 32);
#pragma unroll
    for (int box = 0; box < Registers / 32; ++box) {
      float largest = 0.0F;
      std::uint32_t words[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int half = i % 2;
        float pair[2];
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const float sum = sums[32 * box + 2 * i + side];
          if constexpr (Kind == kind::special) {
            pair[side] = special_gradient(sum, part, half, part.lane + 64 * box + i / 2 * 8 + side, largest);
          } else {
            const float softmax = fast_exp2(sum * steepness - shift[half]);
            pair[side] = softmax * factor[half];
            largest = Kind == kind::filtered ? maximum_or_nan(largest, softmax) : largest;
          }
        }
        words[i] = pack_pair<T>(pair[0], pair[1]);
      }
      const std::uint32_t row = target.open_box(scratch, box) + lane % 16 * 128U;
#pragma unroll
      for (std::uint32_t eighth = 0; eighth < 8; eighth += 2) {
        const std::uint32_t chunk = (eighth + lane / 16) ^ (lane % 8);
        store_matrix_x4(row + chunk * 16U, words[2 * eighth], words[2 * eighth + 1], words[2 * eighth + 2],
                        words[2 * eighth + 3]);
      }
      target.close_box(scratch, box, part.place);
      keep_block(largest, part.place.row, part.place.column + 64 * box);
    }
  }

  __device__ __forceinline__ float special_gradient(float sum, tile_part const& part, int half,
                                                    std::int32_t column, float& largest) const {
    constexpr float log2_e = 1.442695041F;
    row_factors const& row = part.rows[half];
    if (row.label < 0 || column >= part.width) {
      return 0.0F;
    }
    const float logit = sum * map.inverse_temperature;
    const float log_softmax = logit - row.log_sum_exp;
    const float softmax = fast_exp2(log_softmax * log2_e);
    const float spread = smoothing * inverse_vocabulary;
    const float wanted = column == part.label[half] ? 1.0F - smoothing + spread : spread;
    largest = maximum_or_nan(largest, absolute(softmax - wanted));
    float gradient = row.by_softmax * softmax - row.by_loss * wanted;
    if (has_entropies) {
      loss_token_factors const& token = tokens[part.place.row + static_cast<std::int32_t>(threadIdx.x % 32 / 4) + 8 * half];
      gradient -= softmax == 0.0F ? 0.0F : token.by_entropy * softmax * (log_softmax + token.entropy);
    }
    return gradient * map.slope(logit);
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
