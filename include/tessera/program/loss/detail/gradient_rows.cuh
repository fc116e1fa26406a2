// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The epilogues of a part's products: `write_classifier_rows` and `add_hidden_rows`. Both pass sums through
/// shared memory, 16 rows x 32 channels of a warp at a time, so that a lane gets 16 neighbouring channels of a row and
/// moves 16 bytes at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/detail/sum_lines.cuh>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/add_to_memory.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

inline constexpr int channels_of_lane = 16;

/// A lane's row and first channel within a box.
struct lane_coordinate {
  std::int32_t row;
  std::int32_t channel;
  __device__ __forceinline__ static lane_coordinate mine() {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    return {lane / 2, lane % 2 * channels_of_lane};
  }
};

/// Turns box number `Box` of a warp's sums (registers as warpgroup_mma.cuh says) into 16 channels of a row for each
/// lane.
template <int Box, int Registers>
__device__ __forceinline__ void stage_sums(float const (&sums)[Registers], sum_staging& staging,
                                           float (&values)[channels_of_lane]) {
  auto const lane = static_cast<std::uint32_t>(thread_index() % 32);
  std::uint32_t const shared = shared_address(staging.values);
  stage_box<Box>(sums, shared, lane);
  std::uint32_t const row = lane / 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t const chunk = (lane % 2 * 4 + i) ^ (row % 8);
    float4 const four = load_shared_f32x4(shared + row * 128 + chunk * 16);
    values[4 * i] = four.x;
    values[4 * i + 1] = four.y;
    values[4 * i + 2] = four.z;
    values[4 * i + 3] = four.w;
  }
}

/// A lane's 16 neighbouring channels of a row in memory, `count` of which exist; the row begins at a multiple of 16
/// bytes.
template <class T>
struct lane_channels {
  static constexpr int words = channels_of_lane * static_cast<int>(sizeof(T)) / 16;
  static constexpr int in_word = 16 / static_cast<int>(sizeof(T));
  T* data;
  std::int32_t count;

  __device__ __forceinline__ void read(uint4 (&into)[words]) const {
#pragma unroll
    for (int i = 0; i < words; ++i) {
      if (count >= (i + 1) * in_word) {
        into[i] = *reinterpret_cast<uint4 const*>(data + i * in_word);
      } else {
        T some[in_word] = {};
        for (int k = 0; k < in_word && i * in_word + k < count; ++k) {
          some[k] = data[i * in_word + k];
        }
        memcpy(&into[i], some, sizeof(uint4));
      }
    }
  }
  __device__ __forceinline__ void write(uint4 const (&from)[words]) const {
#pragma unroll
    for (int i = 0; i < words; ++i) {
      if (count >= (i + 1) * in_word) {
        *reinterpret_cast<uint4*>(data + i * in_word) = from[i];
      } else {
        T some[in_word];
        memcpy(some, &from[i], sizeof(uint4));
        for (int k = 0; k < in_word && i * in_word + k < count; ++k) {
          data[i * in_word + k] = some[k];
        }
      }
    }
  }
};

/// Rounds the values of a lane and packs them into words.
template <class T>
__device__ __forceinline__ void pack(float const (&values)[channels_of_lane], uint4 (&words)[lane_channels<T>::words]) {
  std::uint32_t all[lane_channels<T>::words * 4];
#pragma unroll
  for (int i = 0; i < lane_channels<T>::words * 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      all[i] = bit_cast<std::uint32_t>(values[i]);
    } else {
      all[i] = pack_pair<T>(values[2 * i], values[2 * i + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < lane_channels<T>::words; ++i) {
    words[i] = uint4{all[4 * i], all[4 * i + 1], all[4 * i + 2], all[4 * i + 3]};
  }
}

/// The upper and the lower halves of fp32 bits, two to a word, and back.
struct split_floats {
  uint4 upper[2];
  uint4 lower[2];

  __device__ __forceinline__ static split_floats of(float const (&values)[channels_of_lane]) {
    std::uint32_t high[8];
    std::uint32_t low[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      auto const first = bit_cast<std::uint32_t>(values[2 * i]);
      auto const second = bit_cast<std::uint32_t>(values[2 * i + 1]);
      high[i] = __byte_perm(first, second, 0x7632);
      low[i] = __byte_perm(first, second, 0x5410);
    }
    return {{{high[0], high[1], high[2], high[3]}, {high[4], high[5], high[6], high[7]}},
            {{low[0], low[1], low[2], low[3]}, {low[4], low[5], low[6], low[7]}}};
  }
  __device__ __forceinline__ void add_to(float (&values)[channels_of_lane]) const {
    std::uint32_t const high[8] = {upper[0].x, upper[0].y, upper[0].z, upper[0].w,
                                   upper[1].x, upper[1].y, upper[1].z, upper[1].w};
    std::uint32_t const low[8] = {lower[0].x, lower[0].y, lower[0].z, lower[0].w,
                                  lower[1].x, lower[1].y, lower[1].z, lower[1].w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[2 * i] += bit_cast<float>(__byte_perm(low[i], high[i], 0x5410));
      values[2 * i + 1] += bit_cast<float>(__byte_perm(low[i], high[i], 0x7632));
    }
  }
};

/// Adds the floats that a part of a row holds.
__device__ __forceinline__ void add_floats(lane_channels<float> const& part, float (&values)[channels_of_lane]) {
  uint4 words[4];
  part.read(words);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[4 * i] += bit_cast<float>(words[i].x);
    values[4 * i + 1] += bit_cast<float>(words[i].y);
    values[4 * i + 2] += bit_cast<float>(words[i].z);
    values[4 * i + 3] += bit_cast<float>(words[i].w);
  }
}

/// Adds the values of a lane to 16 neighbouring floats.
__device__ __forceinline__ void add_floats_in_memory(float const (&values)[channels_of_lane], float* at) {
#pragma unroll
  for (int i = 0; i < channels_of_lane; i += 4) {
    add_to_memory(at + i, float4{values[i], values[i + 1], values[i + 2], values[i + 3]});
  }
}

/// Multiplies the values of a lane.
__device__ __forceinline__ void scale_values(float (&values)[channels_of_lane], float factor) {
#pragma unroll
  for (float& value : values) {
    value *= factor;
  }
}

/// Calls f with std::integral_constant<int, Box> for each Box of the sequence.
template <class F, int... Box>
__device__ __forceinline__ void each_box(F const& f, std::integer_sequence<int, Box...>) {
  (f(std::integral_constant<int, Box>{}), ...);
}

}  // namespace detail

/// Writes rows of the classifier's gradient, each once, or adds them to what they hold.
template <class Gradient>
struct write_classifier_rows {
  matrix_view<Gradient> target;  ///< vocabulary x channels; rows begin at multiples of 16 bytes
  std::int32_t const* order;     ///< the entry in each slot of the backward pass; null: entries are in their own order
  float const* scale;            ///< the last factor of all gradients
  bool accumulates;              ///< whether to add to what the target holds; only for float

  /// Whether sums of no products must be written: unless they are added, where they are not NaN.
  __device__ __forceinline__ bool takes_nothing() const { return !adds() || is_nan(*scale); }

  template <int Registers>
  __device__ __forceinline__ void operator()(loss_part_range const& range, float const (&sums)[Registers],
                                             std::int32_t row, std::int32_t channel, sum_staging& staging) const {
    detail::lane_coordinate const mine = detail::lane_coordinate::mine();
    std::int64_t const in_part = row + mine.row;
    bool const is_there = in_part < range.width();
    std::int64_t entry = range.first + in_part;
    if (is_there && order != nullptr) {
      entry = order[entry];
    }
    float const factor = *scale;
    auto const write_box = [&](auto box) {
      float values[detail::channels_of_lane];
      detail::stage_sums<decltype(box)::value>(sums, staging, values);
      std::int32_t const first = channel + decltype(box)::value * 32 + mine.channel;
      auto const count = static_cast<std::int32_t>(target.extent(1)) - first;
      if (is_there && count > 0) {
        detail::lane_channels<Gradient> const part{&target(entry, first), count};
        detail::scale_values(values, factor);
        if constexpr (std::is_same_v<Gradient, float>) {
          if (adds()) {
            detail::add_floats(part, values);
          }
        }
        uint4 words[detail::lane_channels<Gradient>::words];
        detail::pack<Gradient>(values, words);
        part.write(words);
      }
    };
    detail::each_box(write_box, std::make_integer_sequence<int, detail::staged_boxes<Registers>>{});
  }

  /// Does the same for fp32 by a short loop that moves whole lines, and adds in memory. The sums are used up.
  template <int Registers>
  __device__ __forceinline__ void in_lines(loss_part_range const& range, float (&sums)[Registers], std::int32_t row,
                                           std::int32_t channel, sum_staging& staging) const {
    lines_of_entries const lines{*this, range.first + row, static_cast<std::int32_t>(range.width()) - row, *scale,
                                 adds() ? detail::line_use::added_in_memory : detail::line_use::written};
    detail::put_boxes(sums, staging, lines, channel);
  }

 private:
  /// The lines of entries, for put_boxes.
  struct lines_of_entries {
    write_classifier_rows const& all;
    std::int64_t first;  ///< the slot of the warp's first row
    std::int32_t left;   ///< how many slots there are from that on
    float factor;
    detail::line_use use;

    __device__ __forceinline__ detail::line_place place(std::uint32_t row, std::int32_t channel) const {
      bool const is_there = static_cast<std::int32_t>(row) < left;
      std::int64_t const slot = first + row;
      std::int64_t const entry = is_there && all.order != nullptr ? all.order[slot] : slot;
      auto const count = static_cast<std::int32_t>(all.target.extent(1)) - channel;
      return {&all.target(entry, channel), is_there ? count : 0, 1.0F};
    }
    __device__ __forceinline__ static float4 finished(std::uint32_t, float4 const& line) { return line; }
  };
  __device__ __forceinline__ bool adds() const { return std::is_same_v<Gradient, float> && accumulates; }
};

/// Adds the sums of a part to the gradients of hidden states, and rounds them after the last part. Gradients that
/// accumulate are added to what the target held before the first part: each part's sums are multiplied by the last
/// factor first, and tokens without a label keep what they had. AddsInMemory: whether sums are added to floats without
/// reading them where they need nothing else, which takes sm_90 (add_to_memory.cuh).
template <class Gradient, bool AddsInMemory = false>
struct add_hidden_rows {
  matrix_view<Gradient> target;        ///< tokens x channels; rows begin at multiples of 16 bytes
  matrix_view<std::uint16_t> remains;  ///< tokens x channels, rounded up to 8: lower halves; not used for float
  float const* scale;                  ///< the last factor of all gradients
  bool accumulates;                    ///< whether to add to what the target holds; only for float
  bool is_of_softmaxes;                ///< whether sums still lack the factors loss_token_factors::by_kept

  /// Whether sums of no products must be written: in the first and the last part; where they are added, if they are
  /// NaN.
  __device__ __forceinline__ bool takes_nothing(loss_part_range const& range) const {
    return adds() ? is_nan(*scale) : range.is_first() || range.is_last();
  }

  template <int Registers>
  __device__ __forceinline__ void operator()(loss_part_range const& range,
                                             array_view<loss_token_factors const> const& tokens,
                                             float const (&sums)[Registers], std::int32_t row, std::int32_t channel,
                                             sum_staging& staging) const {
    detail::lane_coordinate const mine = detail::lane_coordinate::mine();
    std::int64_t const token = row + mine.row;
    float const factor = adds() || range.is_last() ? *scale : 1.0F;
    bool const is_kept = adds() && token < tokens.size() && tokens[token].label < 0 && !is_nan(factor);
    bool const is_there = token < tokens.size() && !is_kept;
    bool const is_cleared = is_there && range.is_last() && tokens[token].label < 0;
    float const of_token = is_of_softmaxes && is_there ? tokens[token].by_kept : 1.0F;
    auto const add_box = [&](auto box) {
      float values[detail::channels_of_lane];
      detail::stage_sums<decltype(box)::value>(sums, staging, values);
      std::int32_t const first = channel + decltype(box)::value * 32 + mine.channel;
      auto const count = static_cast<std::int32_t>(target.extent(1)) - first;
      if (is_there && count > 0) {
        if (is_of_softmaxes) {
          detail::scale_values(values, of_token);
        }
        if (adds()) {
          detail::scale_values(values, factor);
        }
        bool const has_before = adds() || !range.is_first();
        if constexpr (is_float && AddsInMemory) {
          if (has_before && (adds() || !range.is_last()) && count >= detail::channels_of_lane) {
            detail::add_floats_in_memory(values, &target(token, first));
            return;
          }
        }
        if (has_before) {
          add_before(values, token, first, count);
        }
        write(range, values, token, first, count, factor, is_cleared);
      }
    };
    detail::each_box(add_box, std::make_integer_sequence<int, detail::staged_boxes<Registers>>{});
  }

  /// Does the same for fp32 by a short loop that moves whole lines. The sums are used up.
  template <int Registers>
  __device__ __forceinline__ void in_lines(loss_part_range const& range,
                                           array_view<loss_token_factors const> const& tokens, float (&sums)[Registers],
                                           std::int32_t row, std::int32_t channel, sum_staging& staging) const {
    bool const is_last = range.is_last() && !adds();
    float const factor = adds() || is_last ? *scale : 1.0F;
    std::int64_t const token = row + static_cast<std::int32_t>(thread_index() % 16);
    bool const is_token = token < tokens.size();
    bool const is_cleared = (adds() || is_last) && is_token && tokens[token].label < 0;
    bool const stays = adds() && is_cleared && !is_nan(factor);
    lines_of_tokens const lines{*this,
                                tokens,
                                row,
                                ballot_of_warp(is_token && !stays),
                                ballot_of_warp(is_last && is_cleared),
                                adds() ? factor : 1.0F,
                                is_last ? factor : 1.0F,
                                !adds() && range.is_first() ? detail::line_use::written
                                : is_last                   ? detail::line_use::added
                                                            : detail::line_use::added_in_memory};
    detail::put_boxes(sums, staging, lines, channel);
  }

 private:
  /// The lines of tokens, for put_boxes.
  struct lines_of_tokens {
    add_hidden_rows const& all;
    array_view<loss_token_factors const> const& tokens;
    std::int32_t first;  ///< the token of the warp's first row
    unsigned there;      ///< a bit for each row: whether it takes sums
    unsigned cleared;    ///< a bit for each row: whether it becomes zeros
    float factor;        ///< before sums are added
    float last_factor;   ///< after that
    detail::line_use use;

    __device__ __forceinline__ detail::line_place place(std::uint32_t row, std::int32_t channel) const {
      bool const is_there = (there >> row & 1) != 0;
      std::int64_t const token = first + static_cast<std::int64_t>(row);
      auto const count = static_cast<std::int32_t>(all.target.extent(1)) - channel;
      return {&all.target(token, channel), is_there ? count : 0,
              is_there && all.is_of_softmaxes ? tokens[token].by_kept : 1.0F};
    }
    __device__ __forceinline__ float4 finished(std::uint32_t row, float4 const& line) const {
      if ((cleared >> row & 1) != 0) {
        float const zero = 0.0F * last_factor;
        return {zero, zero, zero, zero};
      }
      return detail::product(line, last_factor);
    }
  };
  static constexpr bool is_float = std::is_same_v<Gradient, float>;
  __device__ __forceinline__ bool adds() const { return is_float && accumulates; }

  __device__ __forceinline__ void add_before(float (&values)[detail::channels_of_lane], std::int64_t token,
                                             std::int32_t channel, std::int32_t count) const {
    detail::lane_channels<Gradient> const part{&target(token, channel), count};
    if constexpr (is_float) {
      detail::add_floats(part, values);
    } else {
      detail::split_floats before;
      part.read(before.upper);
      low_part(token, channel).read(before.lower);
      before.add_to(values);
    }
  }

  __device__ __forceinline__ void write(loss_part_range const& range, float (&values)[detail::channels_of_lane],
                                        std::int64_t token, std::int32_t channel, std::int32_t count, float factor,
                                        bool is_cleared) const {
    detail::lane_channels<Gradient> const part{&target(token, channel), count};
    if constexpr (!is_float) {
      if (!range.is_last()) {
        detail::split_floats const halves = detail::split_floats::of(values);
        part.write(halves.upper);
        low_part(token, channel).write(halves.lower);
        return;
      }
    }
    if (range.is_last() && !adds()) {
#pragma unroll
      for (float& value : values) {
        value = (is_cleared ? 0.0F : value) * factor;
      }
    }
    uint4 packed[detail::lane_channels<Gradient>::words];
    detail::pack<Gradient>(values, packed);
    part.write(packed);
  }
  __device__ __forceinline__ detail::lane_channels<std::uint16_t> low_part(std::int64_t token,
                                                                           std::int32_t channel) const {
    return {&remains(token, channel), static_cast<std::int32_t>(remains.extent(1)) - channel};
  }
};

}  // namespace v0
}  // namespace tessera
