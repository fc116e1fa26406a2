// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Parts of compress_pages (program/compress_pages.cuh): `page_rows`, which page comes next and what is brought and kept
/// of it; `page_elements`, the elements that a thread has.
#pragma once

#include <cstdint>

#include <tessera/concepts/merger.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/cache_memory.hpp>
#include <tessera/program/cache_page.hpp>
#include <tessera/program/measure_pages.hpp>
#include <tessera/program/page_lanes.hpp>
#include <tessera/reduce/pair_products.hpp>
#include <tessera/tile/cuda/barrier.cuh>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// A page that a thread block has.
struct page_rows_work {
  std::byte* page;  ///< null: there is none left
  std::uint32_t number;
  page_number at;
  std::int32_t first_token;  ///< of the sequence
  float thresholds[2];       ///< of keys and values; where none is known, one that no angle reaches
  page_mark mark;            ///< where pages are corrected
};

/// The pages that an append seals, the elements that they are made from, and what is kept for their marks.
template <class T>
struct page_rows {
  static constexpr int tokens = cache_page_format::tokens;

  cache_source<T> source;
  retain_most_different rule;
  view<page_mark const, 3> marks;  ///< sequence x page x head
  view<float, 5> angles;           ///< sequence x page x head x {key, value} x 64; null: nobody needs them
  view<std::uint64_t, 3> guesses;  ///< retained tokens, like marks; null likewise
  bool corrects;                   ///< only pages whose marks differ from their guesses

  [[nodiscard]] __device__ __forceinline__ cache_memory<T> const& memory() const { return source.memory; }
  [[nodiscard]] __device__ __forceinline__ int layers() const { return source.memory.format.layers; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t count() const {
    return static_cast<std::uint32_t>(marks.size());
  }
  [[nodiscard]] __device__ __forceinline__ page_number number_of(std::uint32_t number) const {
    return page_number::of(number, static_cast<std::uint32_t>(marks.extent(1)),
                           static_cast<std::uint32_t>(marks.extent(2)));
  }

  /// By a warp: the first page of `number`, number + gridDim.x, ... that there is something to do for.
  __device__ __forceinline__ void look_up(page_rows_work& work, std::uint32_t number, int lane) const {
    while (number < count()) {
      const std::uint64_t own = number + std::uint64_t{gridDim.x} * static_cast<unsigned>(lane);
      const bool is_one = own < count() && has_work(static_cast<std::uint32_t>(own));
      const unsigned found = __ballot_sync(0xffffffffU, is_one);
      if (found != 0) {
        if (lane == __ffs(static_cast<int>(found)) - 1) {
          work = work_of(static_cast<std::uint32_t>(own));
        }
        __syncwarp();
        return;
      }
      const std::uint64_t next = number + std::uint64_t{gridDim.x} * 32;
      number = next < count() ? static_cast<std::uint32_t>(next) : count();
    }
    if (lane == 0) {
      work.page = nullptr;
    }
    __syncwarp();
  }

  /// By a warp: one part of a page, of both layers.
  __device__ __forceinline__ void bring(page_rows_work const& work, int part, T* first, T* second, shared_barrier& full,
                                        int lane) const {
    const auto channels = static_cast<std::int32_t>(memory().format.channels);
    const int row_bytes = static_cast<int>(sizeof(T)) * channels;
    if (lane == 0) {
      full.arrive_and_expect(layers() * tokens * row_bytes);
    }
    __syncwarp();
    const std::int64_t before = source.before(work.at.sequence);
    if (is_one_piece(work, part, before)) {
      if (lane < layers()) {
        load_bytes(lane == 0 ? first : second, row_of(work, lane, part, 0, before), tokens * row_bytes, full);
      }
      return;
    }
    for (int i = lane; i < layers() * tokens; i += 32) {
      T* const to = (i < tokens ? first : second) + i % tokens * channels;
      load_bytes(to, row_of(work, i / tokens, part, i % tokens, before), row_bytes, full);
    }
  }

  __device__ __forceinline__ void keep_angle(page_rows_work const& work, int part, int token, float angle) const {
    if (angles.data != nullptr && !corrects) {
      angles(work.at.sequence, work.at.page, work.at.head, part, token) = angle;
    }
  }
  /// And thresholds that follow from the rule alone.
  __device__ __forceinline__ void keep_guess(page_rows_work const& work, std::uint64_t retained) const {
    if (corrects) {
      return;
    }
    if (guesses.data != nullptr) {
      guesses(work.at.sequence, work.at.page, work.at.head) = retained;
    }
    if (work.at.page == 0 && !rule.needs_angles()) {
      float* const kept = thresholds_of(work.at);
      kept[key_part] = work.thresholds[key_part];
      kept[value_part] = work.thresholds[value_part];
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ float* thresholds_of(page_number const& at) const {
    return memory().thresholds + 2 * memory().head_of(source.sequences.slot(at.sequence), at.head);
  }
  [[nodiscard]] __device__ __forceinline__ bool has_work(std::uint32_t number) const {
    const page_number at = number_of(number);
    return source.first_page(at.sequence) + at.page < source.end_page(at.sequence) &&
           (!corrects || marks(at.sequence, at.page, at.head).retained != guesses(at.sequence, at.page, at.head));
  }
  [[nodiscard]] __device__ __forceinline__ page_rows_work work_of(std::uint32_t number) const {
    const page_number at = number_of(number);
    const std::int64_t page = source.first_page(at.sequence) + at.page;
    page_rows_work found{};
    found.page = memory().page(source.sequences.blocks(at.sequence, page), at.head);
    found.number = number;
    found.at = at;
    found.first_token = static_cast<std::int32_t>(page * tokens);
    float const* const kept = thresholds_of(at);
    for (int part = 0; part < 2; ++part) {
      const float unknown = rule.needs_angles() ? no_threshold : rule.threshold();
      found.thresholds[part] = is_nan(kept[part]) ? unknown : kept[part];
    }
    if (corrects) {
      found.mark = marks(at.sequence, at.page, at.head);
    }
    return found;
  }

  [[nodiscard]] __device__ __forceinline__ T const* row_of(page_rows_work const& work, int layer, int part, int token,
                                                           std::int64_t before) const {
    const std::int64_t number = work.first_token + token;
    if (number < before) {
      return memory().tail_row(source.sequences.slot(work.at.sequence), layer, part, work.at.head, number);
    }
    return &source.inputs.part(layer, part)(work.at.sequence, work.at.head, number - before, 0);
  }
  /// Of each layer.
  [[nodiscard]] __device__ __forceinline__ bool is_one_piece(page_rows_work const& work, int part,
                                                             std::int64_t before) const {
    const std::int64_t channels = memory().format.channels;
    return work.first_token + tokens <= before ||
           (work.first_token >= before && source.inputs.part(0, part).stride(2) == channels &&
            source.inputs.part(layers() - 1, part).stride(2) == channels);
  }
};

/// Eight channels of four tokens, of two layers; see page_lanes.
template <int Channels, class T>
struct page_elements {
  using lanes_type = page_lanes<Channels>;
  static constexpr int slots = lanes_type::slots;
  static constexpr int octets = lanes_type::octets;

  std::uint32_t words[slots][2][4];  ///< of each layer

  __device__ __forceinline__ void load(lanes_type const& at, T const* first, T const* second, int layers) {
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      const int from = at.token(slot) * Channels + 8 * at.octet();
      copy(words[slot][0], *reinterpret_cast<uint4 const*>(first + from));
      copy(words[slot][1], layers == 2 ? *reinterpret_cast<uint4 const*>(second + from) : uint4{0, 0, 0, 0});
    }
  }

  /// Of the token in slot 0, over all channels.
  [[nodiscard]] __device__ __forceinline__ pair_products products() const {
    pair_products sums[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      sums[slot] = pair_products_reducer{}.identity();
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const float2 first = unpack_pair<T>(words[slot][0][word]);
        const float2 second = unpack_pair<T>(words[slot][1][word]);
        pair_products_reducer{}.push(sums[slot], {first.x, second.x});
        pair_products_reducer{}.push(sums[slot], {first.y, second.y});
      }
    }
    const double of_first[slots] = {sums[0].first, sums[1].first, sums[2].first, sums[3].first};
    const double of_second[slots] = {sums[0].second, sums[1].second, sums[2].second, sums[3].second};
    const double of_both[slots] = {sums[0].cross, sums[1].cross, sums[2].cross, sums[3].cross};
    return {sum_of_row(of_first), sum_of_row(of_second), sum_of_row(of_both)};
  }

  /// Retained tokens are NaN, what has no weights is zero, whatever it is.
  template <class Weights>
  __device__ __forceinline__ void merge(lanes_type const& at, Weights const& weights, std::uint64_t retained,
                                        float (&merged)[slots][8]) const {
    bool has_none = false;
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      mix_weights by = weights(at.token(slot));
      has_none = has_none || (by.first == 0.0F && by.second == 0.0F);
      by.first = (retained >> at.token(slot) & 1U) != 0 ? __int_as_float(0x7fffffff) : by.first;
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const float2 first = unpack_pair<T>(words[slot][0][word]);
        const float2 second = unpack_pair<T>(words[slot][1][word]);
        merged[slot][2 * word] = multiply_add(by.second, second.x, by.first * first.x);
        merged[slot][2 * word + 1] = multiply_add(by.second, second.y, by.first * first.y);
      }
    }
    if (__any_sync(0xffffffffU, has_none)) {
#pragma unroll
      for (int slot = 0; slot < slots; ++slot) {
        const mix_weights by = weights(at.token(slot));
        const bool is_none = by.first == 0.0F && by.second == 0.0F;
        const bool is_retained = (retained >> at.token(slot) & 1U) != 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          merged[slot][j] = is_none && !is_retained ? 0.0F : merged[slot][j];
        }
      }
    }
  }

  /// As row_sum() adds up: of what threads have of each token, for that of slot 0.
  template <class Number>
  [[nodiscard]] __device__ __forceinline__ static Number sum_of_row(Number const (&parts)[slots]) {
    const Number first = parts[0] + __shfl_xor_sync(0xffffffffU, parts[2], octets / 2);
    const Number second = parts[1] + __shfl_xor_sync(0xffffffffU, parts[3], octets / 2);
    Number sum = first + __shfl_xor_sync(0xffffffffU, second, octets / 4);
#pragma unroll
    for (int distance = octets / 8; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffU, sum, distance);
    }
    return sum;
  }

  /// nearest_code() from 0 to 15, as a float; its bits have the code in their lower half.
  [[nodiscard]] __device__ __forceinline__ static float nearest(float steps, std::uint32_t& bits) {
    constexpr float integers_only = 12582912.0F;  // 1.5 * 2^23: floats from here on have no fraction
    const float shifted = __fadd_rn(fminf(fmaxf(steps, 0.0F), 15.0F), integers_only);
    bits = __float_as_uint(shifted);
    return shifted - integers_only;
  }

  /// saturated_half()
  [[nodiscard]] __device__ __forceinline__ static std::uint16_t half_of(float value) {
    constexpr float largest = 65504.0F;
    const float inside = value != value ? value : fminf(fmaxf(value, -largest), largest);
    return static_cast<std::uint16_t>(pack_pair<float16>(inside, inside));
  }

  __device__ __forceinline__ static void store_keys(lanes_type const& at, std::uint32_t const (&codes)[slots][8],
                                                    std::uint32_t* to) {
    const std::uint32_t factor[2] = {at.key_factor(0), at.key_factor(1)};
    const bool is_odd = at.octet() % 2 != 0;
#pragma unroll
    for (int t = 0; t < 4; t += 2) {  // the even thread of a strip has words of t, the other one those of t + 1
      std::uint32_t words[2];
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        const auto half = [&](int channel) {
          return lanes_type::pair(codes[2 * two][channel], codes[2 * two][channel + 1]) * factor[0] +
                 lanes_type::pair(codes[2 * two + 1][channel], codes[2 * two + 1][channel + 1]) * factor[1];
        };
        const std::uint32_t even = half(2 * t);
        const std::uint32_t odd = half(2 * t + 2);
        words[two] = (is_odd ? odd : even) + __shfl_xor_sync(0xffffffffU, is_odd ? even : odd, 1);
      }
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        to[at.key_word(t + (is_odd ? 1 : 0), at.tile(two))] = words[two];
      }
    }
  }

  __device__ __forceinline__ static void store_values(lanes_type const& at, std::uint32_t const (&codes)[slots][8],
                                                      std::uint16_t* to) {
    const std::uint32_t factor[2] = {at.value_factor(0), at.value_factor(1)};
    const bool is_odd = at.octet() % 2 != 0;
#pragma unroll
    for (int channel = 0; channel < 8; channel += 2) {
      const auto halves = [&](int j) {
        return lanes_type::pair(codes[0][j], codes[2][j]) * factor[0] +
               lanes_type::pair(codes[1][j], codes[3][j]) * factor[1];
      };
      const std::uint32_t even = halves(channel);
      const std::uint32_t odd = halves(channel + 1);
      const std::uint32_t word = (is_odd ? odd : even) + __shfl_xor_sync(0xffffffffU, is_odd ? even : odd, 1);
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        to[at.value_half(channel + (is_odd ? 1 : 0), at.tile(two))] =
            static_cast<std::uint16_t>(two == 0 ? word & 0xffffU : word >> 16);
      }
    }
  }

 private:
  __device__ __forceinline__ static void copy(std::uint32_t (&to)[4], uint4 from) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
  }
};

}  // namespace v0
}  // namespace tessera
