// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `write_loss_gradient`: the epilogue of gemm_pingpong, and of gemm_ring, that makes the gradient of a loss by its
/// logits, for a part of the vocabulary, and marks the blocks of 128 tokens x 128 entries that are kept. It is the
/// first half of linear_loss's backward pass. Equations: loss/logit_gradient.hpp.
///
/// Logits are computed again, and turned into gradients, in fp32 registers, which are rounded once, and written by TMA
/// on sm_90a. Rows are all tokens; those without a label get zeros.
#pragma once

#include <cstdint>

#include <tessera/concepts/logit_map.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/store_sums.cuh>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/detail/add_to_columns.cuh>
#include <tessera/program/loss/detail/cap_sums.cuh>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/chosen_registers.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The schedule of a part's tiles. It chooses the rows of the classifier: the gathered copy, or the classifier itself
/// where entries are in their own order.
struct loss_tiles_of_part : listed_loss_tiles {
  loss_part_range range;
  tensor_map in_order;  ///< map of the part's rows in the classifier itself

  /// The map of the part's rows.
  __device__ __forceinline__ tensor_map const& map_of_b(tensor_map const& together) const {
    return range.is_in_order() ? in_order : together;
  }
};

/// The same for a kernel that multiplies while the kernel before it still reads the gradient of the part before.
struct early_loss_tiles : loss_tiles_of_part {
  bool waits_first;  ///< whether lists of tiles or rows of the classifier may be written by that kernel
};

/// How sm_90a writes boxes of 16 rows x 64 gradients.
template <class T>
struct loss_gradient_boxes : store_sums_by_boxes<T, plain_sum> {
  /// Writes pairs of gradients of rows lane / 4 and lane / 4 + 8 to 16 columns of an open box.
  __device__ __forceinline__ static void write_columns(std::uint32_t shared, int quarter, std::uint32_t first,
                                                       std::uint32_t second, std::uint32_t third,
                                                       std::uint32_t fourth) {
    auto const lane = static_cast<std::uint32_t>(thread_index() % 32);
    std::uint32_t const chunk = (2 * static_cast<std::uint32_t>(quarter) + lane / 16) ^ (lane % 8);
    store_matrix_x4(shared + lane % 16 * 128U + chunk * 16U, first, second, third, fourth);
  }
};

/// The epilogue that turns sums into gradients by logits, and marks the blocks of 128 x 128 that are kept. Boxes: how
/// gradients are written, loss_gradient_boxes or row_boxes. For those with a member `marks_nothing` it marks none.
template <class T, LogitMap Map = identity_logits, class Boxes = loss_gradient_boxes<T>>
struct write_loss_gradient {
  /// How gradients are written.
  using boxes = Boxes;
  using scratch_type = typename boxes::scratch_type;
  boxes target;  ///< tokens x entries of the part
  loss_part_range range;
  array_view<loss_token_factors const> tokens;
  [[no_unique_address]] Map map;  ///< the map that logits go through; not last, where nvcc 13.0 miscounts sizes
  logit_scaling<T> scaling;
  std::int32_t const* order;  ///< the entry in each slot of the backward pass; null: entries are in their own order
  gradient_thresholds thresholds;
  float smoothing;
  float inverse_vocabulary;                       ///< 1 / entries of the vocabulary
  bool has_entropies;                             ///< whether tokens have gradients by their entropies
  matrix_view<std::uint8_t> kept_for_hidden;      ///< blocks of tokens x blocks of the part
  matrix_view<std::uint8_t> kept_for_classifier;  ///< blocks of tokens x blocks of the part
  __device__ __forceinline__ void prepare() const { target.prepare(); }
  __device__ __forceinline__ void finish() const { target.finish(); }

  template <int Registers>
  __device__ __forceinline__ void operator()(float (&sums)[Registers], box_coordinate coordinate, scratch_type& scratch,
                                             std::int32_t) const {
    tile_part part{coordinate, static_cast<std::int32_t>(range.width()) - coordinate.column,
                   rows_of_box::first_column(own_lane())};
    auto const read = [&](int row, row_factors& factors) { factors = row_of(coordinate.row + row); };
    rows<Registers>::each_row(own_lane(), read, part.rows);
    scale_sums(sums, part);
    clear_unused(sums, part);
    take_labels(sums, part);
    if constexpr (!leaves_logits<Map>) {
      differentiate_specially(sums, part, scratch);
    } else if (scaling.cap > 0.0F || smoothing != 0.0F || is_far(part)) {
      differentiate_specially(sums, part, scratch);
    } else if (has_entropies) {
      differentiate<true, true>(sums, part, scratch);
    } else if (thresholds.hidden > 0.0F || thresholds.classifier > 0.0F) {
      differentiate<true, false>(sums, part, scratch);
    } else {
      differentiate<false, false>(sums, part, scratch);
    }
  }

 private:
  static constexpr float log2_e = 1.442695041F;
  template <int Registers>
  using rows = warpgroup_rows<float, 2 * Registers>;
  using rows_of_box = warpgroup_rows<float, 64>;
  /// A value of each row of a warp.
  template <class Value>
  using of_rows = typename rows_of_box::template row_values<Value>;
  __device__ __forceinline__ static warpgroup_lane own_lane() { return warpgroup_lane::in_warp(thread_index()); }

  /// The factors of a lane's row.
  struct row_factors {
    float log_sum_exp;
    float by_softmax;
    float by_loss;
    std::int32_t label;  ///< its slot in the backward pass; -1: the row has no gradient
  };
  /// A label that one of a lane's sums belongs to. There is at most one for each of the lane's rows.
  struct own_label {
    std::int32_t column = -1;  ///< counted from the tile's first
    float gradient;
    float apart;
  };
  struct tile_part {
    box_coordinate coordinate;  ///< the warp's first token, the tile's first entry in the part
    std::int32_t width;         ///< how many entries exist from the tile's first one on
    std::int32_t lane;          ///< the lane's first column
    of_rows<row_factors> rows;
    of_rows<own_label> labels;
    bool has_labels;  ///< whether some lane of the warp has a label

    [[nodiscard]] __device__ __forceinline__ row_factors const& row(int half) const { return rows.values[0][half]; }
  };

  __device__ __forceinline__ row_factors row_of(std::int32_t token) const {
    if (token >= tokens.size()) {
      return {infinity, 0.0F, 0.0F, -1};
    }
    float4 const words = *reinterpret_cast<float4 const*>(&tokens[token]);
    auto const label = bit_cast<std::int32_t>(words.w);
    return {label < 0 ? infinity : words.x, words.y, words.z, label};
  }

  /// Turns sums into logits, except for the division by the temperature.
  template <int Registers>
  __device__ __forceinline__ void scale_sums(float (&sums)[Registers], tile_part const& part) const {
    if (scaling.bias.data != nullptr) {
      add_to_columns(sums, [&](std::int32_t further) {
        std::int32_t const at = part.lane + further;
        return at < part.width ? static_cast<float>(load(scaling.bias[entry_at(part.coordinate.column + at)])) : 0.0F;
      });
    }
    cap_sums(sums, scaling.cap);
  }

  __device__ __forceinline__ std::int64_t entry_at(std::int32_t column) const {
    return order != nullptr ? order[range.first + column] : range.first + column;
  }

  /// Whether a log-sum-exp is so far from 0 that rounding it in units of log 2 would show in a softmax.
  __device__ __forceinline__ static bool is_far(tile_part const& part) {
    constexpr float far = 8192.0F;  // where softmaxes would be wrong by 3e-4
    bool const is_own = (part.row(0).label >= 0 && absolute(part.row(0).log_sum_exp) > far) ||
                        (part.row(1).label >= 0 && absolute(part.row(1).log_sum_exp) > far);
    return any_of_warp(is_own);
  }

  /// Makes sums such that rows without a gradient, whatever their sums were, and entries that do not exist get a
  /// softmax of 0.
  template <int Registers>
  __device__ __forceinline__ static void clear_unused(float (&sums)[Registers], tile_part& part) {
    if (any_of_warp(part.row(0).label < 0 || part.row(1).label < 0)) {
      auto const clear = [](int, int, float& sum, row_factors const& row) { sum = row.label < 0 ? 0.0F : sum; };
      rows<Registers>::each_with_row(own_lane(), sums, clear, part.rows);
    }
    if (part.width < 2 * Registers) {
      of_rows<int> const ends{{{part.width, part.width}}};
      rows<Registers>::hide_from(own_lane(), sums, -infinity, ends);
    }
  }

  /// Differentiates the few labels one by one, and leaves sums in their place whose softmax is 0.
  template <int Registers>
  __device__ __forceinline__ void take_labels(float (&sums)[Registers], tile_part& part) const {
    auto const before = static_cast<std::int32_t>(range.first) + part.coordinate.column;
    bool is_any_own = false;
    auto const find = [&](int, row_factors const& row, own_label& label) {
      std::int32_t const column = row.label - before;
      std::int32_t const beyond = column - part.lane;
      bool const is_own = row.label >= 0 && beyond >= 0 && column < 2 * Registers && beyond % 8 < 2;
      label.column = is_own ? column : -1;
      is_any_own |= is_own;
    };
    rows<Registers>::each_row(own_lane(), find, part.rows, part.labels);
    part.has_labels = any_of_warp(is_any_own);
    if (part.has_labels) {
      of_rows<float> target{};
      auto const take = [](int, int column, float& sum, own_label const& label, float& found) {
        bool const is_label = column == label.column;
        found = is_label ? sum : found;
        sum = is_label ? -infinity : sum;
      };
      rows<Registers>::each_with_row(own_lane(), sums, take, part.labels, target);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float const spread = smoothing * inverse_vocabulary;
        own_label& label = part.labels.values[0][half];
        label.gradient = special_gradient(target.values[0][half], part, {half, label.column}, 1.0F - smoothing + spread,
                                          label.apart);
      }
    }
  }

  /// The token of a lane's row; null where there is none.
  __device__ __forceinline__ loss_token_factors const* token_of(tile_part const& part, int half) const {
    std::int32_t const token = part.coordinate.row + static_cast<std::int32_t>(thread_index() % 32 / 4) + 8 * half;
    return part.row(half).label < 0 ? nullptr : &tokens[token];
  }
  /// The gradients of a row are softmax * (factor - by_logarithm * log2 softmax) where entropies have gradients.
  struct row_slopes {
    float factor;
    float by_logarithm;
  };
  template <bool Entropies>
  __device__ __forceinline__ row_slopes slopes_of(tile_part const& part, int half) const {
    constexpr float log_2 = 0.6931471806F;
    row_slopes slopes{part.row(half).by_softmax * scaling.inverse_temperature, 0.0F};
    if constexpr (Entropies) {
      if (loss_token_factors const* const token = token_of(part, half)) {
        float const by_entropy = token->by_entropy * scaling.inverse_temperature;
        slopes = {slopes.factor - by_entropy * token->entropy, by_entropy * log_2};
      }
    }
    return slopes;
  }

  /// Makes and writes the gradients of a tile, which take softmaxes alone, a box of 64 columns at a time. Filtered:
  /// also finds the largest softmax of each block. Entropies: tokens have gradients by their entropies, too.
  template <bool Filtered, bool Entropies, int Registers>
  __device__ __forceinline__ void differentiate(float (&sums)[Registers], tile_part const& part,
                                                scratch_type& scratch) const {
    using operand = warpgroup_mma<T, 64>;
    float const steepness = scaling.inverse_temperature * log2_e;
    of_rows<float> const shift{{{part.row(0).log_sum_exp * log2_e, part.row(1).log_sum_exp * log2_e}}};
    of_rows<row_slopes> const slopes{{{slopes_of<Entropies>(part, 0), slopes_of<Entropies>(part, 1)}}};
#pragma unroll
    for (int box = 0; box < Registers / 32; ++box) {
      float largest = 0.0F;
      auto const gradient_of = [&](int, int, float sum, float shifted, row_slopes const& slope) {
        float const exponent = sum * steepness - shifted;
        float const softmax = fast_exp2(exponent);
        largest = Filtered ? maximum_or_nan(largest, softmax) : largest;
        float factor = slope.factor;
        if constexpr (Entropies) {  // at least -1024, where softmaxes are 0, so that no product is one of infinity
          factor = __fmaf_rn(-slope.by_logarithm, fmaxf(exponent, -1024.0F), factor);
        }
        return softmax * factor;
      };
      typename rows_of_box::sum_tile gradients;
      rows_of_box::map_sums<rows_of_box>(own_lane(), rows<Registers>::template columns_of<64>(sums, 64 * box),
                                         gradients, gradient_of, shift, slopes);
      std::uint32_t const shared = target.open_box(scratch, box);
      each_constant<4>([&](auto quarter) {
        typename operand::a_tile words;
        rows_of_box::template as_operand<operand, 16 * quarter.value>(own_lane(), gradients, words);
        Boxes::write_columns(shared, quarter.value, words[0], words[1], words[2], words[3]);
      });
      end_box(shared, box, largest, part, scratch);
    }
  }

  /// Makes and writes the gradients of a tile with all that options and a map can ask for, 16 columns at a time, by a
  /// loop: unrolled, ptxas took 6.8 s for the program instead of 1.3.
  template <int Registers>
  __device__ __forceinline__ void differentiate_specially(float const (&sums)[Registers], tile_part const& part,
                                                          scratch_type& scratch) const {
    float const wanted = smoothing * inverse_vocabulary;
    float largest = 0.0F;
    std::uint32_t shared = 0;
#pragma unroll 1
    for (int some = 0; some < Registers / 8; ++some) {
      if (some % 4 == 0) {
        largest = 0.0F;
        shared = target.open_box(scratch, some / 4);
      }
      float chosen[8];
      choose_registers(chosen, sums, some);
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int const half = i % 2;
        float pair[2];
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          float apart;
          pair[side] = special_gradient(chosen[2 * i + side], part, {half, part.lane + 16 * some + i / 2 * 8 + side},
                                        wanted, apart);
          largest = maximum_or_nan(largest, apart);
        }
        words[i] = pack_pair<T>(pair[0], pair[1]);
      }
      Boxes::write_columns(shared, some % 4, words[0], words[1], words[2], words[3]);
      if (some % 4 == 3) {
        end_box(shared, some / 4, largest, part, scratch);
      }
    }
  }

  /// Writes the gradients of labels over those of their place, and stores the box. `largest`: how far apart from what
  /// is wanted softmaxes of other entries are.
  __device__ __forceinline__ void end_box(std::uint32_t shared, int box, float largest, tile_part const& part,
                                          scratch_type& scratch) const {
    auto const lane = static_cast<std::uint32_t>(thread_index() % 32);
    if (part.has_labels) {
      sync_warp();
#pragma unroll
      for (std::uint32_t half = 0; half < 2; ++half) {
        own_label const& label = part.labels.values[0][half];
        if (label.column >= 0 && label.column / 64 == box) {
          std::uint32_t const at = static_cast<std::uint32_t>(label.column) % 64;
          std::uint32_t const in_box = lane / 4 + 8 * half;
          store_shared_u16(shared + in_box * 128 + ((at / 8) ^ (in_box % 8)) * 16 + at % 8 * 2,
                           pack_pair<T>(label.gradient, 0.0F));
          largest = maximum_or_nan(largest, label.apart);
        }
      }
    }
    target.close_box(scratch, box, part.coordinate, cache_policy::evict_first());
    keep_block(largest, part.coordinate.row, part.coordinate.column + 64 * box);
  }

  /// The coordinate of a sum in the tile.
  struct sum_coordinate {
    int half;             ///< which of the lane's rows
    std::int32_t column;  ///< counted from the tile's first; -1: there is no such sum
  };
  /// A logit, and its derivative by what the map was given.
  struct mapped_logit {
    float value;
    float slope;
  };
  /// Gives a logit of a row with a label to the map, if its entry exists and is not masked.
  __device__ __forceinline__ mapped_logit map_logit(float scaled, tile_part const& part, sum_coordinate at) const {
    if constexpr (leaves_logits<Map>) {
      return {scaled, 1.0F};
    }
    if (part.row(at.half).label < 0 || scaled == -infinity || at.column < 0) {
      return {scaled, 1.0F};
    }
    std::int32_t const token = part.coordinate.row + static_cast<std::int32_t>(thread_index() % 32 / 4) + 8 * at.half;
    std::int64_t const entry = entry_at(part.coordinate.column + at.column);
    return {map(scaled, token, entry), map.slope(scaled, token, entry)};
  }

  /// The gradient of a sum with all that options and a map can ask for. `wanted`: the probability that the entry should
  /// have.
  __device__ __forceinline__ float special_gradient(float sum, tile_part const& part, sum_coordinate at, float wanted,
                                                    float& apart) const {
    int const half = at.half;
    row_factors const& row = part.row(half);
    float const scaled = sum * scaling.inverse_temperature;
    mapped_logit const mapped = map_logit(scaled, part, at);
    float const logit = mapped.value;
    float const log_softmax = logit - row.log_sum_exp;
    float const softmax = fast_exp2(log_softmax * log2_e);
    bool const is_used = row.label >= 0;
    apart = is_used ? absolute(softmax - wanted) : 0.0F;
    float gradient = row.by_softmax * softmax - row.by_loss * wanted;
    if (has_entropies && is_used) {
      loss_token_factors const& token = *token_of(part, half);
      gradient -= softmax == 0.0F ? 0.0F : token.by_entropy * softmax * (log_softmax + token.entropy);
    }
    float const slope =
        scaling.cap > 0.0F && scaled == -infinity ? 0.0F : scaling.slope(scaled);  // 0 for entries that do not exist
    return is_used ? gradient * (slope * mapped.slope) : 0.0F;
  }

  /// Marks a block as kept, for all of its tokens, if one value of the warp reaches the threshold.
  __device__ __forceinline__ void keep_block(float largest, std::int32_t row, std::int32_t column) const {
    if constexpr (!requires { Boxes::marks_nothing; }) {
      bool const for_hidden = any_of_warp(!(largest < thresholds.hidden));
      bool const for_classifier = any_of_warp(!(largest < thresholds.classifier));
      if (thread_index() % 32 == 0 && column < range.width() && row < tokens.size()) {
        if (for_hidden) {
          kept_for_hidden(row / 128, column / 128) = 1;
        }
        if (for_classifier) {
          kept_for_classifier(row / 128, column / 128) = 1;
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
