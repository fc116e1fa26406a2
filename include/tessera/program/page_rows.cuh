// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Parts of compress_pages (program/compress_pages.cuh): `page_rows`, which page comes next and what is brought and
/// kept of it; `page_elements`, the elements that a thread has.
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
#include <tessera/view/head_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// A page that a thread block has.
template <class T>
struct page_rows_work {
  /// Of keys or values of a layer. Tokens before `in_tail` are in the tail.
  struct place {
    T const* tail;        ///< of the page's first token
    T const* input;       ///< likewise, as if it were there
    std::int64_t stride;  ///< from token to token of the input

    /// Where a token of the page lies.
    [[nodiscard]] __device__ __forceinline__ T const* row(int token, int in_tail, int channels) const {
      return token < in_tail ? tail + token * channels : input + token * stride;
    }
  };

  std::byte* page;       ///< null: there is none left
  std::uint32_t number;  ///< among all that an append seals
  page_number at;        ///< the same, apart
  std::int32_t in_tail;  ///< tokens of the page
  place places[2][2];    ///< of keys and values of each layer
  float thresholds[2];   ///< of keys and values; where none is known, one that no angle reaches
  page_mark mark;        ///< where pages are corrected
};

/// The pages that an append seals, the elements that they are made from, and what is kept for their marks.
template <class T>
struct page_rows {
  static constexpr int tokens = cache_page_format::tokens;
  /// A page, where its tokens lie and what is known of them.
  using work_type = page_rows_work<T>;

  cache_source<T> source;
  retain_most_different rule;      ///< which tokens are retained
  view<page_mark const, 3> marks;  ///< sequence x page x head
  view<float, 5> angles;           ///< sequence x page x head x {key, value} x 64; null: nobody needs them
  view<std::uint64_t, 3> guesses;  ///< retained tokens, like marks; null likewise
  bool corrects;                   ///< only pages whose marks differ from their guesses

  /// Where the cache lies.
  [[nodiscard]] __device__ __forceinline__ cache_memory<T> const& memory() const { return source.memory; }
  /// Of the part of the cache, 1 or 2.
  [[nodiscard]] __device__ __forceinline__ int layers() const { return source.memory.format.layers; }
  /// Numbers of pages, as if all sequences sealed as many as there is room for in `marks`.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t count() const {
    return static_cast<std::uint32_t>(marks.size());
  }
  /// The page of a number below count().
  [[nodiscard]] __device__ __forceinline__ page_number number_of(std::uint32_t number) const {
    return page_number::of(number, static_cast<std::uint32_t>(marks.extent(1)),
                           static_cast<std::uint32_t>(marks.extent(2)));
  }

  /// By a warp: the first page of `number`, number + gridDim.x, ... that there is something to do for.
  __device__ __forceinline__ void look_up(work_type& work, std::uint32_t number, int lane) const {
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
  __device__ __forceinline__ void bring(work_type const& work, int part, T* first, T* second, shared_barrier& full,
                                        int lane) const {
    const int channels = memory().format.channels;
    const int row_bytes = static_cast<int>(sizeof(T)) * channels;
    if (lane == 0) {
      full.arrive_and_expect(layers() * tokens * row_bytes);
    }
    __syncwarp();
    auto const& places = work.places[part];
    const bool is_one_piece = work.in_tail == tokens || (work.in_tail == 0 && places[0].stride == channels &&
                                                         places[layers() - 1].stride == channels);
    if (is_one_piece) {
      if (lane < layers()) {
        load_bytes(lane == 0 ? first : second, places[lane].row(0, work.in_tail, channels), tokens * row_bytes, full);
      }
      return;
    }
    for (int i = lane; i < layers() * tokens; i += 32) {
      T* const to = (i < tokens ? first : second) + i % tokens * channels;
      load_bytes(to, places[i / tokens].row(i % tokens, work.in_tail, channels), row_bytes, full);
    }
  }

  /// Writes the angle of a token's keys or values where somebody needs it; not again where pages are corrected.
  __device__ __forceinline__ void keep_angle(work_type const& work, int part, int token, float angle) const {
    if (angles.data != nullptr && !corrects) {
      angles(work.at.sequence, work.at.page, work.at.head, part, token) = angle;
    }
  }
  /// Likewise the tokens of a page that it took for retained; and, with a sequence's first page of these, thresholds
  /// that follow from the rule alone.
  __device__ __forceinline__ void keep_guess(work_type const& work, std::uint64_t retained) const {
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
  [[nodiscard]] __device__ __forceinline__ typename work_type::place place_of(page_number const& at, int layer,
                                                                              int part, std::int64_t first,
                                                                              std::int64_t before) const {
    head_view<T const> const& inputs = source.inputs.part(layer, part);
    T const* const tail = memory().tail_row(source.sequences.slot(at.sequence), layer, part, at.head, first);
    const bool is_in_tail = first + tokens <= before;
    return {tail, is_in_tail ? tail : &inputs(at.sequence, at.head, first - before, 0), inputs.stride(2)};
  }
  [[nodiscard]] __device__ __forceinline__ work_type work_of(std::uint32_t number) const {
    const page_number at = number_of(number);
    const std::int64_t page = source.first_page(at.sequence) + at.page;
    work_type found{};
    found.page = memory().page(source.sequences.blocks(at.sequence, page), at.head);
    found.number = number;
    found.at = at;
    const std::int64_t first = page * tokens;
    const std::int64_t before = source.before(at.sequence);
    found.in_tail = static_cast<std::int32_t>(clamp(before - first, std::int64_t{0}, std::int64_t{tokens}));
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int layer = 0; layer < 2; ++layer) {
        if (layer < layers()) {
          found.places[part][layer] = place_of(at, layer, part, first, before);
        }
      }
    }
    float const* const kept = thresholds_of(at);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const float unknown = rule.needs_angles() ? no_threshold : rule.threshold();
      found.thresholds[part] = is_nan(kept[part]) ? unknown : kept[part];
    }
    if (corrects) {
      found.mark = marks(at.sequence, at.page, at.head);
    }
    return found;
  }
};

/// Tokens of a page, one bit each.
struct odd_tokens {
  std::uint64_t retained;    ///< kept as they were, keys and values
  std::uint64_t weightless;  ///< whose keys or values, of which this is asked, have weights of 0
};

/// Eight channels of four tokens, of two layers; see page_lanes.
template <int Channels, class T>
struct page_elements {
  /// Which elements a thread has.
  using lanes_type = page_lanes<Channels>;
  static constexpr int slots = lanes_type::slots;    ///< tokens of a thread
  static constexpr int octets = lanes_type::octets;  ///< pieces of 8 channels of a token

  std::uint32_t words[slots][2][4];  ///< of each layer

  /// Loads them from 64 tokens x Channels of each layer; where `layers` is 1 those of the second are zeros.
  __device__ __forceinline__ void take(lanes_type const& at, T const* first, T const* second, int layers) {
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      const int from = at.token(slot) * Channels + 8 * at.octet();
      copy(words[slot][0], *reinterpret_cast<uint4 const*>(first + from));
      copy(words[slot][1], layers == 2 ? *reinterpret_cast<uint4 const*>(second + from) : uint4{0, 0, 0, 0});
    }
  }

  /// Of the token in slot 0, over all channels. From where the elements were loaded.
  [[nodiscard]] __device__ __forceinline__ pair_products products(lanes_type const& at, T const* first, T const* second,
                                                                  int layers) const {
    pair_products sums[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      octet_products octet{};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const float2 a = unpack_pair<T>(words[slot][0][word]);
        const float2 b = unpack_pair<T>(words[slot][1][word]);
        octet.push(a.x, b.x);
        octet.push(a.y, b.y);
      }
      sums[slot] = octet.sums();
      if (!octet.is_enough()) {
        const int from = at.token(slot) * Channels + 8 * at.octet();
        sums[slot] = exact_products(first + from, layers == 2 ? second + from : nullptr);
      }
    }
    const double of_first[slots] = {sums[0].first, sums[1].first, sums[2].first, sums[3].first};
    const double of_second[slots] = {sums[0].second, sums[1].second, sums[2].second, sums[3].second};
    const double of_both[slots] = {sums[0].cross, sums[1].cross, sums[2].cross, sums[3].cross};
    return {sum_of_row(of_first), sum_of_row(of_second), sum_of_row(of_both)};
  }

  /// Retained tokens are NaN, what has no weights is zero, whatever it is.
  template <class Weights>
  __device__ __forceinline__ void merge(lanes_type const& at, Weights const& weights, odd_tokens const& odd,
                                        float (&merged)[slots][8]) const {
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      const mix_weights by = weights(at.token(slot));
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const float2 first = unpack_pair<T>(words[slot][0][word]);
        const float2 second = unpack_pair<T>(words[slot][1][word]);
        merged[slot][2 * word] = multiply_add(by.second, second.x, by.first * first.x);
        merged[slot][2 * word + 1] = multiply_add(by.second, second.y, by.first * first.y);
      }
    }
    if ((odd.retained | odd.weightless) != 0) {
#pragma unroll
      for (int slot = 0; slot < slots; ++slot) {
        const std::uint64_t bit = std::uint64_t{1} << at.token(slot);
        const float instead = (odd.retained & bit) != 0 ? __int_as_float(0x7fffffff) : 0.0F;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          merged[slot][j] = ((odd.retained | odd.weightless) & bit) != 0 ? instead : merged[slot][j];
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

  static constexpr float integers_only = 12582912.0F;  ///< see nearest_code_of()

  /// nearest_code_of(), and that number: its bits have the code in their lower half.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t nearest(float part) {
    return __float_as_uint(multiply_add(__saturatef(part), 15.0F, integers_only));
  }
  /// Four codes in four bytes.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t four_bytes(std::uint32_t a, std::uint32_t b,
                                                                           std::uint32_t c, std::uint32_t d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
  }

  /// saturated_half()
  [[nodiscard]] __device__ __forceinline__ static std::uint16_t half_of(float value) {
    constexpr float largest = 65504.0F;
    const float inside = value != value ? value : fminf(fmaxf(value, -largest), largest);
    return static_cast<std::uint16_t>(pack_pair<float16>(inside, inside));
  }

  /// Writes codes of keys, in the lower halves of `codes`, to those of the page, which begin at `to`. All lanes of a
  /// warp: neighbours exchange parts of words.
  __device__ __forceinline__ static void store_keys(lanes_type const& at, std::uint32_t const (&codes)[slots][8],
                                                    std::uint32_t* to) {
    const std::uint32_t factor[2] = {at.key_factor(0), at.key_factor(1)};
    const bool is_odd = at.octet() % 2 != 0;
    std::uint32_t* const first[2] = {to + at.key_word(at.octet() % 2, at.tile(0)),
                                     to + at.key_word(at.octet() % 2, at.tile(1))};
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
        first[two][lanes_type::words_of_pair * t] = words[two];
      }
    }
  }

  /// Likewise, of values.
  __device__ __forceinline__ static void store_values(lanes_type const& at, std::uint32_t const (&codes)[slots][8],
                                                      std::uint16_t* to) {
    const std::uint32_t factor[2] = {at.value_factor(0), at.value_factor(1)};
    const bool is_odd = at.octet() % 2 != 0;
    std::uint16_t* const first[2] = {to + at.value_half(at.octet() % 2, at.tile(0)),
                                     to + at.value_half(at.octet() % 2, at.tile(1))};
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
        first[two][lanes_type::halves_of_channel * channel] =
            static_cast<std::uint16_t>(two == 0 ? word & 0xffffU : word >> 16);
      }
    }
  }

 private:
  /// Seldom.
  [[nodiscard]] __device__ __forceinline__ static pair_products exact_products(T const* first, T const* second) {
    pair_products sums = pair_products_reducer{}.identity();
#pragma unroll 1
    for (int channel = 0; channel < 8; ++channel) {
      pair_products_reducer{}.push(sums, {load(first[channel]), second != nullptr ? load(second[channel]) : 0.0F});
    }
    return sums;
  }
  __device__ __forceinline__ static void copy(std::uint32_t (&to)[4], uint4 from) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
  }
};

}  // namespace v0
}  // namespace tessera
