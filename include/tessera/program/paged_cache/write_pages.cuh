// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compress_pages`: compresses keys and values of two layers to whole pages of 4-bit codes, and reads them once
/// (sm_90). The bytes are those of measure_pages.hpp and paged_cache/write_pages.hpp.
///
/// A thread block goes from page to page. TMA loads keys, and values, of 64 tokens of both layers into shared memory,
/// those of the next page during the work on this one, and stores the page. Threads hold the elements as
/// program/paged_cache/detail/page_lanes.hpp says. For each page the block computes
///
///     products of keys and of values -> | lengths, angles, weights; a thread a row -> | merged keys, their ranges
///     -> | scales -> | codes and lengths of keys; values to registers -> | codes and lengths of values -> |
/// where | is a barrier of the whole block; blocks that share a multiprocessor fill these gaps.
///
/// Which tokens are retained may depend on the angles of all pages and on how many were retained before. A page is made
/// with what is known when it is read: earlier thresholds, NaNs and nearly opposite directions, as if all retained
/// tokens had room. After marks are made (measure_pages.hpp) the program `corrects` the pages that were wrong.
///
/// With 128 channels a page is 64 KiB in and 9760 bytes out, which a copy at 4.2 TB/s moves for each of 132
/// multiprocessors every 2.4 us: time for 17 000 warp instructions at 1.76 GHz. The instructions for each of its 16 384
/// pairs of elements of two layers:
///
///     products     2 conversions, 3 multiply-adds                                                             5
///     merging      2 conversions, 2 multiply-adds                                                             4
///     keys         bounds 1.25 (in pairs of fp16), code 1, its bits in a word 0.9,  |e'|^2 3                  6.2
///     values       bounds 1.75, code 1, its bits in a word 1.3,  sums of codes and squares 0.6                4.7
///
/// These are 7400 warp instructions, and about 1800 for four warps of rows, in double: no program of this arithmetic
/// has fewer than 9200. 15 700 are executed, 2.75 a cycle (one H200): the rest are loads, addresses and exchanges.
/// Free blocks take the next page: equal parts take a tenth longer. Appending 65 536 tokens of 32 heads takes 0.76 ms.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/detail/key_channels.cuh>
#include <tessera/program/paged_cache/detail/page_lanes.hpp>
#include <tessera/program/paged_cache/detail/page_source.cuh>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/pairs.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Compresses pages. Groups: of a value's channels. T: bfloat16 or float16.
template <int Channels, int Groups, Merger M, class T>
struct compress_pages {
  /// The elements that a thread has.
  using lanes_type = page_lanes<Channels>;
  /// The parameters of the keys' channels.
  using channels_type = page_channels<Channels>;
  /// The format of pages of two layers; those of one layer are the same up to read_bytes(), and end there.
  static constexpr cache_page_format format{Channels, 4, 4, Groups, 2};
  static constexpr int lanes = lanes_type::lanes;
  static constexpr int blocks_per_multiprocessor = Channels == 64 ? 5 : Channels == 128 ? 3 : 1;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool is_persistent = true;
  static constexpr int tokens = cache_page_format::tokens;
  static constexpr int slots = lanes_type::slots;  ///< tokens of a thread
  static constexpr int warps = lanes / 32;
  static constexpr int group_lanes = lanes_type::eights / Groups;  ///< lanes of a token and group
  static constexpr int bits = 4;                                   ///< bits of a code
  static constexpr float origin = channels_type::origin;           ///< the origin of codes
  static_assert(group_lanes >= 4, "tessera: compress_pages takes groups of at least 32 channels");

  /// The operations on the elements of a thread.
  using elements_type = page_elements<Channels, T>;
  /// Where these elements are in memory.
  using slots_type = page_slots<Channels>;
  /// The page that the block works on, or loads next.
  using work_type = page_rows_work_item<T>;

  /// The lengths from which the scales of a token's key or value follow, with its codes.
  struct merged_length {
    two_lengths<float> lengths;  ///< the factors of the merged vector for both layers
    float square;                ///< the square of the merged vector's length
  };
  /// Products of keys and values, and then the lengths, weights and parameters that follow from them.
  struct row_memory {
    /// The products of a token's keys, and then lengths.
    union key_slot {
      float_products products;  ///< products of both layers over all channels
      merged_length length;     ///< what follows from them
    };
    /// The products of values until these are measured, and then the parameters of the keys' channels.
    union value_slot {
      float_products products[tokens];  ///< products of both layers over all channels
      channels_type channels;           ///< parameters of the keys' channels
    };
    value_slot values;               ///< see value_slot
    mix_weights weights[2][tokens];  ///< weights of both layers' keys, and values, of each token
    key_slot keys[tokens];           ///< products or lengths of each token's keys
  };
  /// Whether row_memory fits into the memory where the codes of values are written last.
  static constexpr bool has_room = static_cast<int>(sizeof(row_memory)) <= format.value_code_bytes();

  struct scratch_type {
    alignas(16) T stage[2][2][tokens * Channels];                        ///< keys and values of both layers
    alignas(16) unsigned char image[format.bytes()];                     ///< the page as it will be in memory
    alignas(16) unsigned char more[has_room ? 16 : sizeof(row_memory)];  ///< row_memory that the page has no room for
    merged_length values[tokens];                                        ///< lengths of each token's value
    work_type work_items[2];                                             ///< this page and the next one, alternately
    unsigned clamped;                         ///< 1 + the last turn whose keys must be clamped
    alignas(16) std::uint32_t wants[4];       ///< one bit for each key and value: it is to stay apart
    alignas(16) std::uint32_t weightless[4];  ///< one bit for each key and value: its weights are 0
    shared_barrier full[2];                   ///< keys, and values, have arrived in `stage`
  };

  M merger;           ///< merges pairs of vectors
  page_rows<T> rows;  ///< the pages, and how they are loaded and noted

  /// Compresses the pages of a block. The launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    constexpr int shared = 228 * 1024;    // bytes of a multiprocessor
    constexpr int reserved = 1024;        // bytes of a block
    constexpr int exchange = 32 * warps;  // bytes of a group
    static_assert(blocks_per_multiprocessor * (static_cast<int>(sizeof(scratch_type)) + exchange + reserved) <= shared);
    if (group.lane < 2) {
      scratch.full[group.lane].init(1);
      scratch.clamped = 0;
    }
    fence_barrier_init();
    group.sync();
    if (is_producer(group.lane)) {
      rows.look_up_first(scratch.work_items[0], group.lane % 32);
      fetch(scratch, 0, key_part, group.lane % 32);
      fetch(scratch, 0, value_part, group.lane % 32);
    }
    group.sync();
    auto const own_slots = slots_type::of({thread_here()});
    for (unsigned turn = 0; scratch.work_items[turn % 2].page != nullptr; ++turn) {
      compress(group, scratch, turn, own_slots);
    }
    if (is_producer(group.lane)) {
      await_box_stores<0>();
    }
  }

 private:
  /// The tokens of a page that are not merged like the others.
  struct page_odds {
    std::uint64_t retained;  ///< the retained tokens
    bool has_any;            ///< whether any is retained, or has weights of 0
  };

  [[nodiscard]] __device__ __forceinline__ static row_memory& memory_of(scratch_type& scratch) {
    return *reinterpret_cast<row_memory*>(has_room ? scratch.image + format.value_codes() : scratch.more);
  }
  [[nodiscard]] __device__ __forceinline__ static int key_norms(int layer) {
    constexpr int of_second = format.key_norms(1);
    return layer == 0 ? 0 : of_second;
  }

  /// The index of the thread, which compilers see is not negative.
  [[nodiscard]] __device__ __forceinline__ static int thread_here() {
    return static_cast<int>(thread_index_here() % static_cast<unsigned>(lanes));
  }
  [[nodiscard]] __device__ __forceinline__ static bool is_producer(int lane) { return lane / 32 == warps - 1; }

  /// Loads a part of the page of a turn, if there is one. One warp.
  __device__ __forceinline__ void fetch(scratch_type& scratch, unsigned turn, int part, int lane) const {
    work_type const& work = scratch.work_items[turn % 2];
    if (work.page != nullptr) {
      rows.fetch(work, part, scratch.stage[part][0], scratch.stage[part][1], scratch.full[part], lane);
    }
  }

  __device__ __forceinline__ void compress(cuda_block<lanes> const& group, scratch_type& scratch, unsigned turn,
                                           slots_type const& own_slots) const {
    work_type const& work = scratch.work_items[turn % 2];
    multiply(group, scratch, turn, own_slots);
    group.sync();
    {
      auto const lane = thread_here();
      if (is_producer(lane)) {
        rows.look_up_next(scratch.work_items[(turn + 1) % 2], work, lane % 32);
      }
      if (lane < 2 * tokens) {
        measure(scratch, work, lane / tokens, lane % tokens);
      }
    }
    group.sync();
    page_odds const odds = odds_of(scratch, work);
    float merged[slots][8];
    merge<key_part>(scratch, odds, own_slots, merged);
    write_bounds(scratch, {thread_here()}, merged);
    group.sync();
    if (thread_here() < Channels) {
      fit_channel(scratch, thread_here(), turn);
    }
    group.sync();
    if (is_producer(thread_here())) {
      fetch(scratch, turn + 1, key_part, thread_here() % 32);
    }
    encode_keys(scratch, {thread_here()}, merged, odds.retained, turn);
    merge<value_part>(scratch, odds, own_slots, merged);
    group.sync();
    if (is_producer(thread_here())) {
      fetch(scratch, turn + 1, value_part, thread_here() % 32);
    }
    encode_values(scratch, {thread_here()}, own_slots, merged, odds.retained);
    if (thread_here() == 0) {
      write_header(scratch, work, odds.retained);
    }
    fence_async_proxy();
    group.sync();
    if (is_producer(thread_here())) {
      if (thread_here() % 32 == 0) {
        std::uint32_t const after_next =
            rows.number_after(scratch.work_items[(turn + 1) % 2].number);  // while TMA reads
        if (work.is_kept) {
          store_bytes(work.page, scratch.image, rows.layers() == 2 ? format.bytes() : format.read_bytes());
          commit_box_stores();
          await_box_reads<0>();
        }
        scratch.work_items[(turn + 1) % 2].following = after_next;
      }
      sync_warp();
    }
  }

  template <int Part>
  __device__ __forceinline__ void merge(scratch_type& scratch, page_odds const& odds, slots_type const& own_slots,
                                        float (&merged)[slots][8]) const {
    elements_type::template merge<Part == key_part>(own_slots, scratch.stage[Part][0], scratch.stage[Part][1],
                                                    memory_of(scratch).weights[Part], merged);
    if (odds.has_any) {
      lanes_type const at{thread_here()};
      odd_tokens const odd{odds.retained, bits_of(scratch.weightless, Part)};
      float const instead = Part == key_part ? __int_as_float(0x7fffffff) : 0.0F;  // ranges of keys leave NaNs out
      elements_type::replace(
          odd, instead, [&](int slot) { return Part == key_part ? at.key_token(slot) : at.value_token(slot); }, merged);
    }
  }

  /// Computes products of keys and then of values, by one loop, since its instructions are many already.
  __device__ __forceinline__ void multiply(cuda_block<lanes> const& group, scratch_type& scratch, unsigned turn,
                                           slots_type const& own_slots) const {
    lanes_type const at{thread_here()};
    row_memory& memory = memory_of(scratch);
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
      scratch.full[part].wait(turn % 2);
      float_products const products =
          elements_type::products(own_slots, at.eight(), scratch.stage[part][0], scratch.stage[part][1]);
      if (part == key_part) {
        group.sync();  // the page before has been read
      }
      if (at.copy() == 0) {
        int const token = at.key_token(0);
        (part == key_part ? memory.keys[token].products : memory.values.products[token]) = products;
      }
    }
  }

  /// Measures a token's keys or values. A thread for each row.
  __device__ __forceinline__ void measure(scratch_type& scratch, work_type const& work, int part, int token) const {
    row_memory& memory = memory_of(scratch);
    pair_products const products =
        elements_type::measured(part == key_part ? memory.keys[token].products : memory.values.products[token],
                                scratch.stage[part][0] + token * Channels,
                                rows.layers() == 2 ? scratch.stage[part][1] + token * Channels : nullptr);
    merged_row const row = detail::merge_row(merger, products);
    memory.weights[part][token] = row.weights;
    (part == key_part ? memory.keys[token].length : scratch.values[token]) = {row.lengths, row.square};
    rows.keep_angle(work, part, token, row.angle);
    unsigned const wants =
        ballot_of_warp(stays_apart(row.angle, work.thresholds[part]) || is_nearly_opposite(row.angle));
    unsigned const weightless = ballot_of_warp(row.weights.first == 0.0F && row.weights.second == 0.0F);
    if (token % 32 == 0) {
      scratch.wants[2 * part + token / 32] = wants;
      scratch.weightless[2 * part + token / 32] = weightless;
    }
  }
  [[nodiscard]] __device__ __forceinline__ static std::uint64_t bits_of(std::uint32_t const (&words)[4], int part) {
    return words[2 * part] | std::uint64_t{words[2 * part + 1]} << 32;
  }
  [[nodiscard]] __device__ __forceinline__ page_odds odds_of(scratch_type const& scratch, work_type const& work) const {
    std::uint64_t const wants = bits_of(scratch.wants, key_part) | bits_of(scratch.wants, value_part);
    std::uint64_t const retained = rows.corrects ? work.mark.retained : rows.memory().row_capacity > 0 ? wants : 0;
    std::uint64_t const weightless = bits_of(scratch.weightless, key_part) | bits_of(scratch.weightless, value_part);
    return {retained, (retained | weightless) != 0};
  }

  // Keys.

  /// Where a thread leaves bounds of its keys, -e or e: over the first token of its row, which only its warp has read.
  [[nodiscard]] __device__ __forceinline__ static uint4& bounds_of(scratch_type& scratch, int which, int row,
                                                                   int eight) {
    T* const token = scratch.stage[key_part][which] + lanes_type::first_token(row) * Channels;
    return reinterpret_cast<uint4*>(token)[eight];
  }
  __device__ __forceinline__ static void write_bounds(scratch_type& scratch, lanes_type const& at,
                                                      float const (&merged)[slots][8]) {
    typename channels_type::bounds const own = channels_type::bounds_of(merged);
    sync_warp();
    bounds_of(scratch, 0, at.row(), at.eight()) = own.negative;
    bounds_of(scratch, 1, at.row(), at.eight()) = own.positive;
    fence_async_proxy();  // TMA writes the next page's keys here
  }

  /// Fits a channel. A thread for each; of two neighbours one finds the lower bounds of both, the other the upper ones.
  __device__ __forceinline__ static void fit_channel(scratch_type& scratch, int channel, unsigned turn) {
    bool const is_upper = channel % 2 != 0;
    int const eight = channels_type::eight_of(channel);
    std::uint32_t bound = 0x7fff7fffU;  // two NaNs
#pragma unroll
    for (int row = 0; row < lanes_type::rows; ++row) {
      auto const* const pairs = reinterpret_cast<std::uint32_t const*>(&bounds_of(scratch, channel % 2, row, eight));
      bound = maximum_f16x2(bound, pairs[channels_type::pair_of(row, channel)]);
    }
    std::uint32_t const other = shuffle_xor(bound, 1);
    float2 const low = unpack_pair<float16>((is_upper ? other : bound) ^ channels_type::signs);
    float2 const high = unpack_pair<float16>(is_upper ? bound : other);
    auto const fitted =
        memory_of(scratch).values.channels.fit(channel, is_upper ? low.y : low.x, is_upper ? high.y : high.x);
    int const slot = channel_slot(channel);
    reinterpret_cast<std::uint16_t*>(scratch.image + format.key_scales())[slot] = fitted.scale;
    reinterpret_cast<std::uint16_t*>(scratch.image + format.key_minima())[slot] = fitted.minimum;
    if (!fitted.is_inside) {
      scratch.clamped = turn + 1;
    }
  }

  /// Encodes keys: `merged` becomes numbers that count from the origin of codes.
  __device__ __forceinline__ void encode_keys(scratch_type& scratch, lanes_type const& at, float (&merged)[slots][8],
                                              std::uint64_t retained, unsigned turn) const {
    row_memory const& memory = memory_of(scratch);
    channels_type const& channels = memory.values.channels;
    int const slot_of_half[2] = {channels_type::slot_of(at, 0), channels_type::slot_of(at, 1)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      auto const reciprocal = channels_type::four_at(channels.reciprocal + slot_of_half[half]);
      auto const offset = channels_type::four_at(channels.offset + slot_of_half[half]);
#pragma unroll
      for (auto& slot : merged) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          slot[4 * half + j] = multiply_add(slot[4 * half + j], reciprocal.of[j], offset.of[j]);
        }
      }
    }
    if (retained != 0 || scratch.clamped == turn + 1) {
      channels_type::clamp_numbers(merged);
    }
    elements_type::store_keys(at, merged, reinterpret_cast<std::uint32_t*>(scratch.image + format.key_codes()));
    float squares[slots];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      auto const scale = channels_type::four_at(channels.scale + slot_of_half[half]);
      auto const base = channels_type::four_at(channels.base + slot_of_half[half]);
#pragma unroll
      for (int slot = 0; slot < slots; ++slot) {
        float square = 0.0F;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float const whole = __uint_as_float(__float_as_uint(merged[slot][4 * half + j]) & 0xffff0000U);
          float const decoded = multiply_add(whole, scale.of[j], base.of[j]);
          square = multiply_add(decoded, decoded, square);
        }
        squares[slot] = half == 0 ? square : squares[slot] + square;
      }
    }
    float const decoded_square = elements_type::sum_of_row(squares);
    int const layer = at.copy();
    if (layer < rows.layers()) {
      int const token = at.key_token(0);
      merged_length const& row = memory.keys[token].length;
      float const factor = length_factor(row.square, decoded_square);
      std::uint16_t const norm = detail::half_bits_of((layer == 0 ? row.lengths.first : row.lengths.second) * factor);
      reinterpret_cast<std::uint16_t*>(scratch.image + key_norms(layer))[token_slot(token)] =
          (retained >> token & 1U) != 0 ? std::uint16_t{0} : norm;
    }
  }

  // Values.

  /// The range of the group that the thread's channels are in, for its token in slot 0.
  [[nodiscard]] __device__ __forceinline__ static interval<float> range_of_group(float const (&merged)[slots][8]) {
    float low[slots];
    float high[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      low[slot] = merged[slot][0];
      high[slot] = merged[slot][0];
#pragma unroll
      for (int j = 1; j < 8; ++j) {
        low[slot] = fminf(low[slot], merged[slot][j]);
        high[slot] = fmaxf(high[slot], merged[slot][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      low[i] = fminf(low[i], shuffle_xor(low[2 + i], 1));
      high[i] = fmaxf(high[i], shuffle_xor(high[2 + i], 1));
    }
    interval<float> range{fminf(low[0], shuffle_xor(low[1], 2)), fmaxf(high[0], shuffle_xor(high[1], 2))};
#pragma unroll
    for (int distance = 4; distance < group_lanes; distance *= 2) {
      range.minimum = fminf(range.minimum, shuffle_xor(range.minimum, distance));
      range.maximum = fmaxf(range.maximum, shuffle_xor(range.maximum, distance));
    }
    return without_signed_zeros(range);
  }

  /// Makes codes of all slots, four in a word; `reciprocal` and `offset` are those of the token of slot 0. Returns the
  /// sums of this token's codes and of their squares in the upper and in the lower half of a word.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t make_codes(float (&merged)[slots][8], float reciprocal,
                                                                           float offset, bool is_finite,
                                                                           std::uint32_t (&codes)[slots][2]) {
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      int const away = lanes_type::distance_to(slot);
      float const by = slot == 0 ? reciprocal : shuffle_xor(reciprocal, away);
      float const plus = slot == 0 ? offset : shuffle_xor(offset, away);
#pragma unroll
      for (float& number : merged[slot]) {
        number = multiply_add(number, by, plus);
      }
    }
    if (!is_finite) {
      channels_type::clamp_numbers(merged);
    }
    std::uint32_t sums[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      float const(&own)[8] = merged[slot];
      codes[slot][0] = elements_type::four_bytes(own[0], own[1], own[2], own[3]);
      codes[slot][1] = elements_type::four_bytes(own[4], own[5], own[6], own[7]);
      std::uint32_t const squares = __dp4a(codes[slot][0], codes[slot][0], __dp4a(codes[slot][1], codes[slot][1], 0U));
      std::uint32_t const sum = __dp4a(codes[slot][0], 0x01010101U, __dp4a(codes[slot][1], 0x01010101U, 0U));
      sums[slot] = sum * 0x10000U + squares;
    }
    return elements_type::template sum_of_row<group_lanes>(sums);
  }

  __device__ __forceinline__ void encode_values(scratch_type& scratch, lanes_type const& at,
                                                slots_type const& own_slots, float (&merged)[slots][8],
                                                std::uint64_t retained) const {
    interval<float> const range = range_of_group(merged);
    float const width = value_group::width_of(range, bits);
    float const reciprocal = 1.0F / width * 15.0F;
    std::uint16_t const half = detail::half_bits_of(range.minimum * reciprocal);
    float const step = width * value_group::share(bits);
    float const ratio = unpack_pair<float16>(half).x;
    std::uint32_t codes[slots][2];
    bool const is_finite = all_of_warp(width < infinity);
    std::uint32_t const sums = make_codes(merged, reciprocal, (origin + 0.5F) - ratio, is_finite, codes);
    elements_type::store_values(at, own_slots, codes,
                                reinterpret_cast<std::uint32_t*>(scratch.image + format.value_codes()));
    float decoded_square = value_group::decoded_square(
        step, ratio, 8 * group_lanes, {static_cast<int>(sums >> 16), static_cast<int>(sums & 0xffffU)});
#pragma unroll
    for (int distance = group_lanes; distance < lanes_type::eights; distance *= 2) {
      decoded_square += shuffle_xor(decoded_square, distance);
    }
    if (at.eight() % group_lanes < 4) {
      int const token = at.value_token(0);
      int const slot = at.eight() / group_lanes * tokens + token_slot(token);
      reinterpret_cast<std::uint16_t*>(scratch.image + format.value_ratios())[slot] = half;
      float const factor = length_factor(scratch.values[token].square, decoded_square);
      two_lengths<float> const lengths = scratch.values[token].lengths;
      for (int layer = 0; layer < rows.layers(); ++layer) {
        float const length = (layer == 0 ? lengths.first : lengths.second) * factor;
        std::uint16_t const scale = detail::half_bits_of(length * step * 8.0F);
        reinterpret_cast<std::uint16_t*>(scratch.image + key_norms(layer) + 2 * tokens)[slot] =
            (retained >> token & 1U) != 0 ? std::uint16_t{0} : scale;
      }
    }
  }

  __device__ __forceinline__ void write_header(scratch_type& scratch, work_type const& work,
                                               std::uint64_t retained) const {
    cache_page_header header{};
    if (rows.corrects) {
      header = {work.mark.retained, work.mark.first_row, work.mark.rows, 0.0F, 0.0F, {0, 0}};
    }
    header.key_threshold = work.thresholds[key_part];
    header.value_threshold = work.thresholds[value_part];
    *reinterpret_cast<cache_page_header*>(scratch.image + format.header()) = header;
    rows.keep_guess(work, retained);
  }
};

}  // namespace v0
}  // namespace tessera
