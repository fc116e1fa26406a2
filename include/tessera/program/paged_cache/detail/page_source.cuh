// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Parts of compress_pages (program/paged_cache/write_pages.cuh): `page_rows` finds the next page, loads it and keeps
/// notes of it; `page_elements` computes with the elements that a thread has.
#pragma once

#include <cstdint>

#include <tessera/concepts/merger.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/detail/page_lanes.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/reduce/pair_products.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// What an append seals of a sequence.
struct sealed_sequence {
  std::uint32_t sequence;  ///< number of the sequence in the batch
  std::int64_t first;      ///< the first page that is sealed
  std::int64_t end;        ///< the end of the pages that are sealed; `first` if the sequence has a fault
  std::int64_t before;     ///< tokens before the append
  std::int64_t slot;       ///< the slot of the sequence
};

/// The page that a thread block works on.
template <class T>
struct page_rows_work_item {
  /// Where keys or values of a layer are. Tokens before `in_tail` are in the tail.
  struct rows_of_layer {
    T const* tail;        ///< the page's first token in the tail
    T const* input;       ///< the page's first token, as if it were in the input
    std::int64_t stride;  ///< elements of the input from token to token

    /// The address of a token of the page.
    [[nodiscard]] __device__ __forceinline__ T const* row(int token, int in_tail, int channels) const {
      return token < in_tail ? tail + token * channels : input + token * stride;
    }
  };

  std::byte* page;       ///< where the page goes; null: no page is left
  bool is_kept;          ///< whether it is stored; if its block is impossible, it is made but not stored
  std::uint32_t number;  ///< its number among all that an append seals
  /// The number from which on the page after it is looked up.
  std::uint32_t following;
  page_number at;                   ///< the same number, in its parts
  sealed_sequence of;               ///< its sequence
  std::int32_t in_tail;             ///< tokens of the page that are in the tail
  bool is_whole;                    ///< whether the tokens of each part follow each other in memory
  rows_of_layer layers_rows[2][2];  ///< keys and values of each layer; one layer is listed twice
  float thresholds[2];  ///< thresholds of keys and values; an unknown one is no_threshold, which no angle reaches
  page_mark mark;       ///< the page's mark, when pages are corrected
};

/// The pages that an append seals, the elements that they are made from, and notes for their marks.
template <class T>
struct page_rows {
  static constexpr int tokens = cache_page_format::tokens;
  /// A page, its elements' addresses and its state.
  using work_type = page_rows_work_item<T>;

  cache_source<T> source;
  retain_most_different rule;      ///< the rule by which tokens are retained
  view<page_mark const, 3> marks;  ///< sequence x page x head
  view<float, 5> angles;           ///< sequence x page x head x {key, value} x 64; null: not needed
  view<std::uint64_t, 3> guesses;  ///< retained tokens as guessed, sequence x page x head; null: not needed
  bool corrects;                   ///< whether only pages are made whose marks differ from their guesses
  /// The counter of pages that blocks have taken after their first ones, as they are free; null: each block has its
  /// own.
  std::uint32_t* taken = nullptr;

  /// The memory of the cache.
  [[nodiscard]] __device__ __forceinline__ cache_memory<T> const& memory() const { return source.memory; }
  /// The layers of the part of the cache, 1 or 2.
  [[nodiscard]] __device__ __forceinline__ int layers() const { return source.memory.format.layers; }
  /// The number of page numbers, as if all sequences sealed as many pages as `marks` has room for.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t count() const {
    return static_cast<std::uint32_t>(marks.size());
  }
  /// The page of a number below count().
  [[nodiscard]] __device__ __forceinline__ page_number number_of(std::uint32_t number) const {
    return page_number::of(number, static_cast<std::uint32_t>(marks.extent(1)),
                           static_cast<std::uint32_t>(marks.extent(2)));
  }

  /// Looks up the first page of the block. One warp.
  __device__ __forceinline__ void look_up_first(work_type& work, int lane) const {
    look_up(work, {~0U, 0, 0, 0, 0}, block_index(), lane);
    if (lane == 0) {
      work.following = number_after(work.number);
    }
  }
  /// The number from which on the page after page `number` is looked up. One lane calls it once for a page, and before
  /// the number is needed: a taken one comes from far away.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t number_after(std::uint32_t number) const {
    return taken == nullptr ? number + blocks_in_grid() : take();
  }
  /// Looks up the page after `last`. Its sequence is mostly that of `last`, which is looked up once. One warp.
  __device__ __forceinline__ void look_up_next(work_type& work, work_type const& last, int lane) const {
    look_up(work, last.of, last.following, lane);
  }

  /// Loads one part of a page, of both layers; one layer is loaded twice, so that no later code depends on their
  /// number. One warp.
  __device__ __forceinline__ void fetch(work_type const& work, int part, T* first, T* second, shared_barrier& full,
                                        int lane) const {
    int const channels = memory().format.channels;
    int const row_bytes = static_cast<int>(sizeof(T)) * channels;
    if (lane == 0) {
      full.arrive_and_expect(2 * tokens * row_bytes);
    }
    sync_warp();
    auto const& rows = work.layers_rows[part];
    if (work.is_whole) {
      if (lane < 2) {
        load_bytes(lane == 0 ? first : second, rows[lane].row(0, work.in_tail, channels), tokens * row_bytes, full);
      }
      return;
    }
#pragma unroll 1
    for (int i = lane; i < 2 * tokens; i += 32) {
      T* const to = (i < tokens ? first : second) + i % tokens * channels;
      load_bytes(to, rows[i / tokens].row(i % tokens, work.in_tail, channels), row_bytes, full);
    }
  }

  /// Notes the angle of a token's keys or values where it is needed, but not when pages are corrected.
  __device__ __forceinline__ void keep_angle(work_type const& work, int part, int token, float angle) const {
    if (angles.data != nullptr && !corrects) {
      angles(work.at.sequence, work.at.page, work.at.head, part, token) = angle;
    }
  }
  /// Notes the tokens that were guessed to be retained where that is needed, and with a sequence's first page
  /// thresholds that follow from the rule alone; but not when pages are corrected.
  __device__ __forceinline__ void keep_guess(work_type const& work, std::uint64_t retained) const {
    if (corrects) {
      return;
    }
    if (guesses.data != nullptr) {
      guesses(work.at.sequence, work.at.page, work.at.head) = retained;
    }
    if (work.at.page == 0 && !rule.needs_angles()) {
      float* const kept = thresholds_of(work.of, work.at.head);
      kept[key_part] = work.thresholds[key_part];
      kept[value_part] = work.thresholds[value_part];
    }
  }

 private:
  /// Looks up the first page of `number`, number + blocks_in_grid(), ... that has work; or of `number` and pages that
  /// no block has taken. `of` is a sequence that has been looked up.
  __device__ __forceinline__ void look_up(work_type& work, sealed_sequence of, std::uint32_t number, int lane) const {
    while (number < count()) {
      std::uint64_t const own = number + std::uint64_t{blocks_in_grid()} * static_cast<unsigned>(lane);
      bool const is_candidate = own < count() && (taken == nullptr || lane == 0);
      bool const is_one = is_candidate && has_work(static_cast<std::uint32_t>(own), of);
      unsigned const found = ballot_of_warp(is_one);
      if (found != 0) {
        int const first = __ffs(static_cast<int>(found)) - 1;
        if (lane == first) {
          work.of = of;
        }
        sync_warp();
        begin(work, number + blocks_in_grid() * static_cast<unsigned>(first), lane);
        return;
      }
      std::uint64_t const next =
          taken == nullptr ? number + std::uint64_t{blocks_in_grid()} * 32 : uniform(lane == 0 ? take() : 0);
      number = next < count() ? static_cast<std::uint32_t>(next) : count();
    }
    if (lane == 0) {
      work.page = nullptr;
    }
    sync_warp();
  }
  /// Takes the next page that no block has taken. One lane.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t take() const {
    return blocks_in_grid() + atomicAdd(taken, 1U);
  }
  /// Looks up a sequence, and reports a fault, with which no page is sealed.
  [[nodiscard]] __device__ __forceinline__ sealed_sequence sealed(std::uint32_t sequence) const {
    std::int64_t const first = source.first_page(sequence);
    sequence_fault const fault = source.fault(sequence);
    if (!fault.is_none()) {
      detail::report_on_device(source.status, fault.code, sequence, fault.detail());
    }
    return {sequence, first, source.end_page(sequence, first, fault), source.before(sequence),
            source.sequences.slot(sequence)};
  }
  [[nodiscard]] __device__ __forceinline__ float* thresholds_of(sealed_sequence const& of, std::uint32_t head) const {
    return memory().thresholds + 2 * memory().head_of(of.slot, head);
  }
  /// Whether a page number has work. `of` is a sequence that has been looked up, and becomes the page's.
  [[nodiscard]] __device__ __forceinline__ bool has_work(std::uint32_t number, sealed_sequence& of) const {
    page_number const at = number_of(number);
    if (of.sequence != at.sequence) {
      of = sealed(at.sequence);
    }
    return of.first + at.page < of.end &&
           (!corrects || marks(at.sequence, at.page, at.head).retained != guesses(at.sequence, at.page, at.head));
  }
  /// Where the keys or values of a layer are, for a page that begins at token `first`.
  [[nodiscard]] __device__ __forceinline__ typename work_type::rows_of_layer rows_of(sealed_sequence const& of,
                                                                                     std::int64_t head, int layer,
                                                                                     int part,
                                                                                     std::int64_t first) const {
    head_view<T const> const& inputs = source.inputs.part(layer, part);
    T const* const tail = first < of.before ? memory().tail_row(of.slot, layer, part, head, first) : nullptr;
    bool const is_in_tail = first + tokens <= of.before;
    return {tail, is_in_tail ? tail : &inputs(of.sequence, head, first - of.before, 0), inputs.stride(2)};
  }
  /// Finds where the page is stored. If its block is impossible, reports that, and the page is not stored. One lane.
  __device__ __forceinline__ void find_page(work_type& work, std::int64_t page) const {
    std::int64_t const block = source.sequences.blocks(work.at.sequence, page);
    work.is_kept = memory().has_block(block);
    work.page = work.is_kept ? memory().page(block, work.at.head) : reinterpret_cast<std::byte*>(memory().tail);
    if (!work.is_kept) {
      sequence_fault const fault = memory().fault_of_block(block);
      detail::report_on_device(source.status, fault.code, work.at.sequence, fault.detail());
    }
  }
  /// Finds the state and addresses of a page of sequence `work.of` before its elements are loaded; each lane finds one
  /// address. One warp.
  __device__ __forceinline__ void begin(work_type& work, std::uint32_t number, int lane) const {
    page_number const at = number_of(number);
    sealed_sequence const of = work.of;
    std::int64_t const page = of.first + at.page;
    std::int64_t const first = page * tokens;
    std::int64_t const behind = clamp(of.before - first, std::int64_t{0}, std::int64_t{tokens});
    int const part = lane % 2;
    bool is_whole = true;
    if (lane < 4) {
      typename work_type::rows_of_layer const found = rows_of(of, at.head, min(lane / 2, layers() - 1), part, first);
      work.layers_rows[part][lane / 2] = found;
      is_whole = behind == tokens || (behind == 0 && found.stride == memory().format.channels);
    }
    is_whole = all_of_warp(is_whole);
    if (lane < 2) {
      float const kept = thresholds_of(of, at.head)[lane];
      float const unknown = rule.needs_angles() ? no_threshold : rule.threshold();
      work.thresholds[lane] = is_nan(kept) ? unknown : kept;
    }
    if (lane == 0) {
      work.number = number;
      work.at = at;
      find_page(work, page);
      work.in_tail = static_cast<std::int32_t>(behind);
      work.is_whole = is_whole;
      if (corrects) {
        work.mark = marks(at.sequence, at.page, at.head);
      }
    }
    sync_warp();
  }
};

/// Tokens of a page that are not merged like the others, one bit each.
struct odd_tokens {
  std::uint64_t retained;    ///< retained tokens, of keys and values
  std::uint64_t weightless;  ///< tokens whose keys or values (those in question) have weights of 0
};

/// Operations on eight channels of four tokens; see page_lanes.
template <int Channels, class T>
struct page_elements {
  /// The elements that a thread has.
  using lanes_type = page_lanes<Channels>;
  /// Where these elements are in memory.
  using slots_type = page_slots<Channels>;
  static constexpr int slots = lanes_type::slots;  ///< tokens of a thread

  /// Products of both layers, over all channels, of the key or value of the token of keys that is in slot 0.
  [[nodiscard]] __device__ __forceinline__ static float_products products(slots_type const& at, int eight,
                                                                          T const* first, T const* second) {
    float_products sums[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      // Eight neighbouring channels, not those that are merged here.
      std::uint32_t const from = at.octet_of(slot, eight);
      uint4 const a = *reinterpret_cast<uint4 const*>(first + from);
      uint4 const b = *reinterpret_cast<uint4 const*>(second + from);
      sums[slot] = {};
      push(sums[slot], a.x, b.x);
      push(sums[slot], a.y, b.y);
      push(sums[slot], a.z, b.z);
      push(sums[slot], a.w, b.w);
    }
    return {sum_of_row({sums[0].first, sums[1].first, sums[2].first, sums[3].first}),
            sum_of_row({sums[0].second, sums[1].second, sums[2].second, sums[3].second}),
            sum_of_row({sums[0].cross, sums[1].cross, sums[2].cross, sums[3].cross})};
  }

  /// The products of a token: those in float, unless they are too large for it. `second` is null where there is one
  /// layer, whose products with a second one do not count.
  [[nodiscard]] __device__ __forceinline__ static pair_products measured(float_products const& products, T const* first,
                                                                         T const* second) {
    float_products const own = second != nullptr ? products : float_products{products.first, 0.0F, 0.0F};
    pair_products sums = own.sums();
    if (!own.is_enough()) {  // seldom
      sums = pair_products_reducer{}.identity();
#pragma unroll 1
      for (int channel = 0; channel < Channels; ++channel) {
        pair_products_reducer{}.push(sums, {load(first[channel]), second != nullptr ? load(second[channel]) : 0.0F});
      }
    }
    return sums;
  }

  /// Merges the keys or values that begin at `first` and `second`, by the weights of tokens.
  template <bool AreKeys>
  __device__ __forceinline__ static void merge(slots_type const& at, T const* first, T const* second,
                                               mix_weights const* weights, float (&merged)[slots][8]) {
    std::uint32_t const token = (AreKeys ? at.key : at.value) / Channels;
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      int const away = AreKeys ? lanes_type::key_distance(slot) : lanes_type::value_distance(slot);
      mix_weights const by = weights[token ^ static_cast<std::uint32_t>(away)];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t const from = at.four_of(AreKeys, slot, half);
        uint2 const a = *reinterpret_cast<uint2 const*>(first + from);
        uint2 const b = *reinterpret_cast<uint2 const*>(second + from);
        merge_pair(by, a.x, b.x, merged[slot][4 * half], merged[slot][4 * half + 1]);
        merge_pair(by, a.y, b.y, merged[slot][4 * half + 2], merged[slot][4 * half + 3]);
      }
    }
  }
  /// Replaces retained tokens by `instead`, and elements without weights by zero.
  template <class Token>
  __device__ __forceinline__ static void replace(odd_tokens const& odd, float instead, Token const& token,
                                                 float (&merged)[slots][8]) {
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      bool const is_retained = (odd.retained >> token(slot) & 1U) != 0;
      bool const is_odd = is_retained || (odd.weightless >> token(slot) & 1U) != 0;
      float const value = is_retained ? instead : 0.0F;
#pragma unroll
      for (float& element : merged[slot]) {
        element = is_odd ? value : element;
      }
    }
  }

  /// Adds up as pair_sum() does, over `lanes` neighbours: parts of each token, to the sum for the token of slot 0.
  template <int Lanes = lanes_type::eights, class Number>
  [[nodiscard]] __device__ __forceinline__ static Number sum_of_row(Number const (&parts)[slots]) {
    Number const first = parts[0] + shuffle_xor(parts[2], 1);
    Number const second = parts[1] + shuffle_xor(parts[3], 1);
    Number sum = first + shuffle_xor(second, 2);
#pragma unroll
    for (int distance = 4; distance < Lanes; distance *= 2) {
      sum += shuffle_xor(sum, distance);
    }
    return sum;
  }

  /// Four codes in four bytes, of numbers that count from the origin of codes of so many bits.
  template <int Bits>
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t four_codes(float a, float b, float c, float d) {
    return codes_of<Bits>(__byte_perm(__byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0062),
                                      __byte_perm(__float_as_uint(c), __float_as_uint(d), 0x0062), 0x5410));
  }

  /// Writes codes of keys, as of 4 bits, from numbers that count from the origin of codes of `Bits` bits; the page's
  /// codes of keys begin at `to`.
  template <int Bits>
  __device__ __forceinline__ static void store_keys(lanes_type const& at, float const (&numbers)[slots][8],
                                                    std::uint32_t* to) {
    std::uint32_t const selector = at.key_selector();
    std::uint32_t const factor[2] = {at.key_factor(0), at.key_factor(1)};
#pragma unroll
    for (int two = 0; two < 2; ++two) {
      std::uint32_t* const words = to + at.key_word(0, two);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        std::uint32_t halves[2];
#pragma unroll
        for (int second = 0; second < 2; ++second) {
          float const(&own)[8] = numbers[2 * two + second];
          halves[second] = codes_of<Bits>(
              __byte_perm(pair_of(own[2 * i], own[2 * i + 1]), pair_of(own[4 + 2 * i], own[5 + 2 * i]), selector));
        }
        words[words_of_pair * i] = halves[0] * factor[0] + halves[1] * factor[1];
      }
    }
  }

  /// Writes codes of values, for each slot those of the first four and those of the others; the page's codes of values
  /// begin at `to`.
  __device__ __forceinline__ static void store_values(lanes_type const& at, slots_type const& own_slots,
                                                      std::uint32_t const (&codes)[slots][2], std::uint32_t* to) {
    std::uint32_t const factor[2] = {at.value_factor(0), at.value_factor(1)};
    std::uint32_t pairs[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      pairs[slot] = codes[slot][0] * factor[0] + codes[slot][1] * factor[1];
    }
    std::uint32_t const selector[2] = {at.value_selector(0), at.value_selector(1)};
    std::uint32_t* const words[2] = {to + own_slots.value_word(0, 0), to + own_slots.value_word(0, 1)};
    constexpr int of_two = 2 * 16;  // words from a channel to the one after the next
#pragma unroll
    for (int two = 0; two < 2; ++two) {
      std::uint32_t const low = __byte_perm(pairs[0], pairs[1], two == 0 ? 0x5140 : 0x7362);
      std::uint32_t const high = __byte_perm(pairs[2], pairs[3], two == 0 ? 0x5140 : 0x7362);
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        words[which][of_two * two] = __byte_perm(low, high, selector[which]);
      }
    }
  }

 private:
  static constexpr int words_of_pair = 4;  ///< words from a pair of channels of keys to the next pair

  __device__ __forceinline__ static void push(float_products& sums, std::uint32_t first, std::uint32_t second) {
    float2 const a = unpack_pair<T>(first);
    float2 const b = unpack_pair<T>(second);
    sums.push(a.x, b.x);
    sums.push(a.y, b.y);
  }
  __device__ __forceinline__ static void merge_pair(mix_weights by, std::uint32_t first, std::uint32_t second,
                                                    float& low, float& high) {
    float2 const a = unpack_pair<T>(first);
    float2 const b = unpack_pair<T>(second);
    low = multiply_add(by.second, b.x, by.first * a.x);
    high = multiply_add(by.second, b.y, by.first * a.y);
  }
  /// Codes in bytes from bytes 2 of numbers that count from the origin, which have codes of 4 bits in their lower
  /// halves, and those of fewer bits above bits of a fraction.
  template <int Bits>
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t codes_of(std::uint32_t bytes) {
    constexpr std::uint32_t mask = ((1U << Bits) - 1U) * 0x01010101U;
    return Bits == 4 ? bytes : bytes >> (4 - Bits) & mask;
  }
  /// Codes in bytes 0 and 2; the other bytes are meaningless.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t pair_of(float low, float high) {
    return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x0602);
  }
};

}  // namespace v0
}  // namespace tessera
