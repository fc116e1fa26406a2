// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compress_pages`: compresses keys and values of two layers to whole pages of codes of 2, 3 or 4 bits, and reads them
/// once (sm_80 on). The bytes are those of measure_pages.hpp and paged_cache/write_pages.hpp.
///
/// A thread block goes from page to page. TMA loads keys, and values, of 64 tokens of both layers into shared memory,
/// those of the next page during the work on this one, and stores the page; before sm_90 all threads do that by copies
/// of 16 bytes (program/paged_cache/detail/page_copies.cuh). Threads hold the elements as
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
/// sm_80's code takes 0.88 ms there, with three thread blocks on a multiprocessor as well, and 0.99 with two, as many
/// as the 164 KiB of one of sm_80 have room for (sm_86 and its like have room for one).
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/detail/key_channels.cuh>
#include <tessera/program/paged_cache/detail/page_copies.cuh>
#include <tessera/program/paged_cache/detail/page_lanes.hpp>
#include <tessera/program/paged_cache/detail/page_source.cuh>
#include <tessera/program/paged_cache/detail/staged_page.cuh>
#include <tessera/program/paged_cache/detail/value_groups.cuh>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/pairs.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Compresses pages. Format: of pages of two layers; those of one layer are the same up to read_bytes(), and end there.
/// T: bfloat16 or float16. Copies: bulk_page_copies, or chunk_page_copies for GPUs without TMA.
template <cache_page_format Format, Merger M, class T, class Copies = bulk_page_copies>
struct compress_pages {
  static constexpr int channels = Format.channels;    ///< channels of a head
  static constexpr int groups = Format.value_groups;  ///< groups of a value's channels
  /// The elements that a thread has.
  using lanes_type = page_lanes<channels>;
  /// The parameters of the keys' channels.
  using channels_type = page_channels<channels, Format.key_bits>;
  /// The page in shared memory, and how it is stored.
  using page_type = staged_page<Format, Copies>;
  static constexpr cache_page_format format = page_type::parts;  ///< where its parts are there
  static constexpr int lanes = lanes_type::lanes;
  static constexpr int blocks_per_multiprocessor = channels == 64 ? 5 : channels == 128 ? 3 : 1;
  static constexpr int from_architecture = Copies::from_architecture;
  static constexpr int before_architecture = Copies::before_architecture;
  static constexpr bool is_persistent = true;
  static constexpr int tokens = cache_page_format::tokens;
  static constexpr int slots = lanes_type::slots;  ///< tokens of a thread
  static constexpr int warps = lanes / 32;
  static constexpr int group_lanes = lanes_type::eights / groups;  ///< lanes of a token and group
  static constexpr int value_bits = Format.value_bits;             ///< bits of a value's code
  static_assert(group_lanes >= 4, "tessera: compress_pages takes groups of at least 32 channels");

  /// The operations on the elements of a thread.
  using elements_type = page_elements<channels, T>;
  /// The groups of a value's channels.
  using groups_type = page_value_groups<elements_type, groups, value_bits>;
  /// Where these elements are in memory.
  using slots_type = page_slots<channels>;
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
    alignas(16) T stage[2][2][tokens * channels];                        ///< keys and values of both layers
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

  /// Compresses the pages of a block. The launch has as many blocks as run at a time, or fewer: a multiprocessor with
  /// less shared memory than an H200's has fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    constexpr int shared = 228 * 1024;    // bytes of a multiprocessor
    constexpr int reserved = 1024;        // bytes of a block
    constexpr int exchange = 32 * warps;  // bytes of a group
    static_assert(blocks_per_multiprocessor * (static_cast<int>(sizeof(scratch_type)) + exchange + reserved) <= shared);
    if (group.lane < 2) {
      Copies::begin(scratch.full[group.lane], lanes);
      scratch.clamped = 0;
    }
    Copies::fence_begin();
    group.sync();
    if (is_producer(group.lane)) {
      rows.look_up_first(scratch.work_items[0], group.lane % 32);
      if constexpr (Copies::is_by_one_warp) {
        fetch(scratch, 0, key_part, group.lane);
        fetch(scratch, 0, value_part, group.lane);
      }
    }
    group.sync();
    if constexpr (!Copies::is_by_one_warp) {
      fetch(scratch, 0, key_part, group.lane);
      fetch(scratch, 0, value_part, group.lane);
    }
    auto const own_slots = slots_type::of({thread_here()});
    for (unsigned turn = 0; scratch.work_items[turn % 2].page != nullptr; ++turn) {
      compress(group, scratch, turn, own_slots);
    }
    if (page_type::is_packed || is_producer(group.lane)) {
      Copies::await_stores();
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

  /// Whether a thread takes part in loads.
  [[nodiscard]] __device__ __forceinline__ static bool does_fetch(int lane) {
    return !Copies::is_by_one_warp || is_producer(lane);
  }

  /// Loads a part of the page of a turn, if there is one. All threads that do so.
  __device__ __forceinline__ void fetch(scratch_type& scratch, unsigned turn, int part, int lane) const {
    work_type const& work = scratch.work_items[turn % 2];
    if (work.page != nullptr) {
      Copies::template load<channels>(rows, work, part, scratch.stage[part][0], scratch.stage[part][1],
                                      scratch.full[part], lane);
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
    if (thread_here() < channels) {
      fit_channel(scratch, thread_here(), turn);
    }
    group.sync();
    if (does_fetch(thread_here())) {
      fetch(scratch, turn + 1, key_part, thread_here());
    }
    encode_keys(scratch, {thread_here()}, merged, odds.retained, turn);
    merge<value_part>(scratch, odds, own_slots, merged);
    group.sync();
    if (does_fetch(thread_here())) {
      fetch(scratch, turn + 1, value_part, thread_here());
    }
    encode_values(scratch, {thread_here()}, own_slots, merged, odds.retained);
    if (thread_here() == 0) {
      write_header(scratch, work, odds.retained);
    }
    Copies::fence();
    group.sync();
    if (is_producer(thread_here())) {
      if (thread_here() % 32 == 0) {
        std::uint32_t const after_next =
            rows.number_after(scratch.work_items[(turn + 1) % 2].number);  // while TMA reads
        if (Copies::is_by_one_warp && work.is_kept) {
          page_type::template store<1>(work.page, scratch.image, rows.layers(), 0);
          if constexpr (!page_type::is_packed) {  // else before the page is overwritten
            Copies::await_reads();
          }
        }
        scratch.work_items[(turn + 1) % 2].following = after_next;
      }
      sync_warp();
    }
    if (!Copies::is_by_one_warp && work.is_kept) {
      page_type::template store<lanes>(work.page, scratch.image, rows.layers(), thread_here());
    }
    if constexpr (page_type::is_packed) {
      page_type::pack_and_store(work.page, scratch.image, work.is_kept, thread_here() / 32, thread_here() % 32);
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

  /// Computes products of keys and then of values, by one loop, since its instructions are many already. With waits
  /// counted by hand (`turn % 2`) a page took 7 instructions less of 6200.
  __device__ __forceinline__ void multiply(cuda_block<lanes> const& group, scratch_type& scratch, unsigned turn,
                                           slots_type const& own_slots) const {
    lanes_type const at{thread_here()};
    row_memory& memory = memory_of(scratch);
    pipeline_state<2> arrived{0, turn % 2};
#pragma unroll 1
    for (read_step<2> const step : pipelined(late_reader(arrived), 2)) {
      int const part = step.stage;
      scratch.full[part].wait(step.state.phase);
      float_products const products =
          elements_type::products(own_slots, at.eight(), scratch.stage[part][0], scratch.stage[part][1]);
      if (part == key_part) {
        if constexpr (page_type::is_packed) {
          Copies::await_reads();  // of a warp's strips
        }
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
                                scratch.stage[part][0] + token * channels,
                                rows.layers() == 2 ? scratch.stage[part][1] + token * channels : nullptr);
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
    T* const token = scratch.stage[key_part][which] + lanes_type::first_token(row) * channels;
    return reinterpret_cast<uint4*>(token)[eight];
  }
  __device__ __forceinline__ static void write_bounds(scratch_type& scratch, lanes_type const& at,
                                                      float const (&merged)[slots][8]) {
    typename channels_type::bounds const own = channels_type::bounds_of(merged);
    sync_warp();
    bounds_of(scratch, 0, at.row(), at.eight()) = own.negative;
    bounds_of(scratch, 1, at.row(), at.eight()) = own.positive;
    Copies::fence();  // the next page's keys come here
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
    channels_type const& fitted = memory.values.channels;
    int const slot_of_half[2] = {channels_type::slot_of(at, 0), channels_type::slot_of(at, 1)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      auto const reciprocal = channels_type::four_at(fitted.reciprocal + slot_of_half[half]);
      auto const offset = channels_type::four_at(fitted.offset + slot_of_half[half]);
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
    elements_type::template store_keys<Format.key_bits>(
        at, merged, reinterpret_cast<std::uint32_t*>(scratch.image + format.key_codes()));
    float squares[slots];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      auto const scale = channels_type::four_at(fitted.scale + slot_of_half[half]);
      auto const base = channels_type::four_at(fitted.base + slot_of_half[half]);
#pragma unroll
      for (int slot = 0; slot < slots; ++slot) {
        float square = 0.0F;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float const whole = __uint_as_float(__float_as_uint(merged[slot][4 * half + j]) & channels_type::whole);
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

  __device__ __forceinline__ void encode_values(scratch_type& scratch, lanes_type const& at,
                                                slots_type const& own_slots, float (&merged)[slots][8],
                                                std::uint64_t retained) const {
    interval<float> const range = groups_type::range_of(merged);
    float const width = value_group::width_of(range, value_bits);
    float const reciprocal = 1.0F / width * static_cast<float>(highest_code(value_bits));
    std::uint16_t const half = detail::half_bits_of(range.minimum * reciprocal);
    float const step = width * value_group::share(value_bits);
    float const ratio = unpack_pair<float16>(half).x;
    std::uint32_t codes[slots][2];
    bool const is_finite = all_of_warp(width < infinity);
    std::uint32_t const sums =
        groups_type::make_codes(merged, reciprocal, value_group::offset(ratio, value_bits), is_finite, codes);
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
        std::uint16_t const scale = detail::half_bits_of(length * step * static_cast<float>(1 << (value_bits - 1)));
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
