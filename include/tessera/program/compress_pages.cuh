// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compress_pages`: makes whole pages of 4-bit codes from what is in two layers, which it reads once (sm_90). The
/// bytes are those of measure_pages.hpp and encode_pages.hpp.
///
/// A thread block goes from page to page. The copy engine brings keys, and values, of 64 tokens of both layers into
/// shared memory, those of the next page while this one is at work, and takes the page away. Threads hold the elements
/// as program/page_lanes.hpp says; for each page
///
///     products of keys and of values -> | lengths, angles, weights; a thread a row -> | merged keys, their ranges
///     -> | scales -> | codes and lengths of keys; values to registers -> | codes and lengths of values -> |
///
/// where | waits for the whole block; blocks that share a multiprocessor fill these gaps.
///
/// Which tokens are retained may follow from the angles of all pages and from how many are retained before. What is
/// known when a page is read decides: thresholds from earlier, NaNs and directions without a middle; as if there were
/// room for all. After the marks are made (measure_pages.hpp) the program `corrects` pages that were guessed wrong.
///
/// Of 128 channels a page is 64 KiB in and 9760 bytes out, which a copy at 4.2 TB/s brings to each of 132
/// multiprocessors every 2.4 us: time for 18 000 instructions of warps. There are about 19 000, counted in the machine
/// code: for each pair of elements 8 for products, 5 for merging, 12 for codes of keys and 16 of values, with what
/// threads exchange, and 500 for rows by four warps. Three blocks fit a multiprocessor.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/cache_codes.hpp>
#include <tessera/program/cache_memory.hpp>
#include <tessera/program/cache_page.hpp>
#include <tessera/program/measure_pages.hpp>
#include <tessera/program/page_lanes.hpp>
#include <tessera/program/page_rows.cuh>
#include <tessera/tile/cuda/barrier.cuh>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Groups: of a value. T: bfloat16 or float16.
template <int Channels, int Groups, class Merger, class T>
struct compress_pages {
  /// Which elements a thread has.
  using lanes_type = page_lanes<Channels>;
  /// Of pages of two layers; those of one layer are the same up to read_bytes(), and end there.
  static constexpr cache_page_format format{Channels, 4, 4, Groups, 2};
  static constexpr int lanes = lanes_type::lanes;
  static constexpr int blocks_per_multiprocessor = Channels == 64 ? 5 : Channels == 128 ? 3 : 1;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool is_persistent = true;
  static constexpr int tokens = cache_page_format::tokens;
  static constexpr int slots = lanes_type::slots;    ///< tokens of a thread
  static constexpr int octets = lanes_type::octets;  ///< pieces of 8 channels of a token
  static constexpr int warps = lanes / 32;
  static constexpr int group_octets = octets / Groups;  ///< of a group of a value
  static constexpr int bits = 4;                        ///< of a code
  static_assert(group_octets >= 4, "tessera: compress_pages takes groups of at least 32 channels");

  /// What threads have.
  using elements_type = page_elements<Channels, T>;
  /// The page that the block is at, or brings next.
  using work_type = page_rows_work<T>;

  /// Keys' products and then what comes of them; values' products and then, of channels, what keys are encoded by.
  struct row_memory {
    /// Of a token's keys.
    union key_place {
      pair_products products;  ///< of both layers, over all channels
      merged_row row;          ///< what follows from them
    };
    /// Of values, until those are measured, then of keys' channels.
    union value_place {
      pair_products products[tokens];  ///< of both layers, over all channels
      float channels[4][Channels];     ///< reciprocal, minimum * reciprocal, minimum, scale
    };
    key_place keys[tokens];             ///< of each token
    value_place values;                 ///< see value_place
    mix_weights value_weights[tokens];  ///< by which both layers' values of a token are merged
  };
  /// What the scales of a token's value follow from, beside its codes.
  struct value_length {
    two_lengths<float> lengths;  ///< by which the merged value is multiplied
    float square;                ///< of the merged value's length
  };
  /// It lies where the codes of values come last, if there is room.
  static constexpr bool has_room = static_cast<int>(sizeof(row_memory)) <= format.value_code_bytes();
  struct nothing {};

  struct scratch_type {
    alignas(16) T stage[2][2][tokens * Channels];  ///< of keys and values: of both layers
    /// The page as it will lie in memory.
    alignas(16) unsigned char image[format.bytes()];
    /// A row_memory, if the page has no room for it.
    alignas(16) unsigned char more[has_room ? 16 : sizeof(row_memory)];
    value_length values[tokens];  ///< of each token
    work_type works[2];           ///< this page and the next, in turns
    std::uint32_t wants[4];       ///< of 32 keys or values each: those that stay apart
    std::uint32_t weightless[4];  ///< likewise: those whose weights are 0
    shared_barrier full[2];       ///< keys, and values, of the page are in `stage`
  };

  Merger merger;      ///< of pairs of vectors
  page_rows<T> rows;  ///< which pages, and what is brought of them

  /// The launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    constexpr int shared = 228 * 1024;    // of a multiprocessor
    constexpr int reserved = 1024;        // of a block
    constexpr int exchange = 32 * warps;  // of a group
    static_assert(blocks_per_multiprocessor * (static_cast<int>(sizeof(scratch_type)) + exchange + reserved) <= shared);
    if (group.lane < 2) {
      scratch.full[group.lane].init(1);
    }
    fence_barrier_init();
    group.sync();
    if (brings(group.lane)) {
      rows.look_up(scratch.works[0], blockIdx.x, group.lane % 32);
      bring(scratch, 0, key_part, group.lane % 32);
      bring(scratch, 0, value_part, group.lane % 32);
    }
    group.sync();
    for (unsigned turn = 0; scratch.works[turn % 2].page != nullptr; ++turn) {
      compress(group, scratch, turn);
    }
    if (brings(group.lane)) {
      await_box_stores<0>();
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ static row_memory& memory_of(scratch_type& scratch) {
    return *reinterpret_cast<row_memory*>(has_room ? scratch.image + format.value_codes() : scratch.more);
  }
  [[nodiscard]] __device__ __forceinline__ static std::int32_t* ranges_of(scratch_type& scratch) {
    return reinterpret_cast<std::int32_t*>(scratch.image + format.key_codes());  // keys' codes come later
  }

  [[nodiscard]] __device__ __forceinline__ static int key_norms(int layer) {
    constexpr int of_second = format.key_norms(1);
    return layer == 0 ? 0 : of_second;
  }

  /// From 0 on, as compilers see.
  [[nodiscard]] __device__ __forceinline__ static int thread_here() {
    return static_cast<int>(thread_index_here() % static_cast<unsigned>(lanes));
  }
  [[nodiscard]] __device__ __forceinline__ static bool brings(int lane) { return lane / 32 == warps - 1; }

  /// One warp: of the work of a turn, if there is one.
  __device__ __forceinline__ void bring(scratch_type& scratch, unsigned turn, int part, int lane) const {
    work_type const& work = scratch.works[turn % 2];
    if (work.page != nullptr) {
      rows.bring(work, part, scratch.stage[part][0], scratch.stage[part][1], scratch.full[part], lane);
    }
  }

  __device__ __forceinline__ void compress(cuda_block<lanes> const& group, scratch_type& scratch, unsigned turn) const {
    work_type const& work = scratch.works[turn % 2];
    multiply(group, scratch, turn);
    group.sync();
    {
      const auto lane = thread_here();
      if (brings(lane)) {
        rows.look_up(scratch.works[(turn + 1) % 2], work.number + gridDim.x, lane % 32);
      }
      start_ranges(scratch, lane);
      if (lane < 2 * tokens) {
        measure(scratch, work, lane / tokens, lane % tokens);
      }
    }
    group.sync();
    float merged[slots][8];
    merge(scratch, work, key_part, merged);
    find_ranges(scratch, {thread_here()}, merged, retained_of(scratch, work) != 0);
    group.sync();
    {
      const auto lane = thread_here();
      if (brings(lane)) {
        bring(scratch, turn + 1, key_part, lane % 32);
      }
      if (lane < Channels) {
        fit_channel(scratch, lane);
      }
    }
    group.sync();
    encode_keys(scratch, {thread_here()}, merged, retained_of(scratch, work));
    merge(scratch, work, value_part, merged);
    group.sync();
    if (brings(thread_here())) {
      bring(scratch, turn + 1, value_part, thread_here() % 32);
    }
    encode_values(scratch, {thread_here()}, merged, retained_of(scratch, work));
    if (thread_here() == 0) {
      write_header(scratch, work, retained_of(scratch, work));
    }
    fence_async_proxy();
    group.sync();
    if (brings(thread_here())) {
      if (thread_here() % 32 == 0) {
        store_bytes(work.page, scratch.image, rows.layers() == 2 ? format.bytes() : format.read_bytes());
        commit_box_stores();
        await_box_reads<0>();
      }
      __syncwarp();
    }
  }

  __device__ __forceinline__ void merge(scratch_type& scratch, work_type const& work, int part,
                                        float (&merged)[slots][8]) const {
    const lanes_type at{thread_here()};
    const odd_tokens odd{retained_of(scratch, work), bits_of(scratch.weightless, part)};
    row_memory const& memory = memory_of(scratch);
    elements_type elements;
    load_elements(scratch, at, part, elements);
    const auto weights = [&](int token) {
      return part == key_part ? memory.keys[token].row.weights : memory.value_weights[token];
    };
    elements.merge(at, weights, odd, merged);
  }

  /// Products of keys and of values.
  __device__ __forceinline__ void multiply(cuda_block<lanes> const& group, scratch_type& scratch, unsigned turn) const {
    const lanes_type at{thread_here()};
    row_memory& memory = memory_of(scratch);
    elements_type elements;
    scratch.full[key_part].wait(turn % 2);
    load_elements(scratch, at, key_part, elements);
    const pair_products of_key = products_of(scratch, at, key_part, elements);
    group.sync();  // the page before has been read
    if (at.place_in_quarter() == 0) {
      memory.keys[at.token(0)].products = of_key;
    }
    scratch.full[value_part].wait(turn % 2);
    load_elements(scratch, at, value_part, elements);
    const pair_products of_value = products_of(scratch, at, value_part, elements);
    if (at.place_in_quarter() == 0) {
      memory.values.products[at.token(0)] = of_value;
    }
  }

  [[nodiscard]] __device__ __forceinline__ pair_products products_of(scratch_type const& scratch, lanes_type const& at,
                                                                     int part, elements_type const& elements) const {
    return elements.products(at, scratch.stage[part][0], scratch.stage[part][1], rows.layers());
  }

  __device__ __forceinline__ void load_elements(scratch_type const& scratch, lanes_type const& at, int part,
                                                elements_type& elements) const {
    elements.take(at, scratch.stage[part][0], scratch.stage[part][1], rows.layers());
  }

  /// A thread a row.
  __device__ __forceinline__ void measure(scratch_type& scratch, work_type const& work, int part, int token) const {
    row_memory& memory = memory_of(scratch);
    const pair_products products = part == key_part ? memory.keys[token].products : memory.values.products[token];
    const merged_row row = detail::merge_row(merger, products);
    if (part == key_part) {
      memory.keys[token].row = row;
    } else {
      memory.value_weights[token] = row.weights;
      scratch.values[token] = {row.lengths, row.square};
    }
    rows.keep_angle(work, part, token, row.angle);
    const unsigned wants =
        __ballot_sync(0xffffffffU, stays_apart(row.angle, work.thresholds[part]) || is_nearly_opposite(row.angle));
    const unsigned weightless = __ballot_sync(0xffffffffU, row.weights.first == 0.0F && row.weights.second == 0.0F);
    if (token % 32 == 0) {
      scratch.wants[2 * part + token / 32] = wants;
      scratch.weightless[2 * part + token / 32] = weightless;
    }
  }
  [[nodiscard]] __device__ __forceinline__ static std::uint64_t bits_of(std::uint32_t const (&words)[4], int part) {
    return words[2 * part] | std::uint64_t{words[2 * part + 1]} << 32;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint64_t retained_of(scratch_type const& scratch,
                                                                     work_type const& work) const {
    const std::uint64_t wants = bits_of(scratch.wants, key_part) | bits_of(scratch.wants, value_part);
    return rows.corrects ? work.mark.retained : rows.memory().row_capacity > 0 ? wants : 0;
  }

  // Keys.

  __device__ __forceinline__ static void start_ranges(scratch_type& scratch, int lane) {
    static_assert(lanes == 2 * Channels);
    ranges_of(scratch)[lane] = ordered_bits(0xff800000U);  // -infinity
  }

  /// The lower and upper bounds of channels. Retained tokens are NaN.
  __device__ __forceinline__ static void find_ranges(scratch_type& scratch, lanes_type const& at,
                                                     float const (&merged)[slots][8], bool has_retained) {
    float low[8];
    float high[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      low[j] = fminf(fminf(merged[0][j], merged[1][j]), fminf(merged[2][j], merged[3][j]));
      high[j] = fmaxf(fmaxf(merged[0][j], merged[1][j]), fmaxf(merged[2][j], merged[3][j]));
    }
    if (has_retained) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        low[j] = fminf(low[j], infinity);
        high[j] = fmaxf(high[j], -infinity);
      }
    }
    // Of threads of a warp that have the same channels the first one goes on with -low, the second one with high.
    std::int32_t* const ranges = ranges_of(scratch) + at.octet();
    const int copy = at.row() % (32 / octets);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if constexpr (octets == 32) {
        atomicMax(ranges + j * octets, ordered_bits(__float_as_uint(-low[j])));
        atomicMax(ranges + Channels + j * octets, ordered_bits(__float_as_uint(high[j])));
      } else {
        const float other = __shfl_xor_sync(0xffffffffU, copy % 2 == 0 ? high[j] : -low[j], octets);
        float bound = fmaxf(copy % 2 == 0 ? -low[j] : high[j], other);
        if constexpr (octets == 8) {
          bound = fmaxf(bound, __shfl_xor_sync(0xffffffffU, bound, 16));
        }
        if (octets == 16 || copy < 2) {
          atomicMax(ranges + copy * Channels + j * octets, ordered_bits(__float_as_uint(bound)));
        }
      }
    }
  }

  __device__ __forceinline__ static void fit_channel(scratch_type& scratch, int channel) {
    std::int32_t const* const ranges = ranges_of(scratch) + channel % 8 * octets + channel / 8;
    const key_channel fitted = key_channel::fit(
        {-__uint_as_float(bits_in_order(ranges[0])), __uint_as_float(bits_in_order(ranges[Channels]))}, bits);
    reinterpret_cast<float16*>(scratch.image + format.key_scales())[channel_place(channel)] = fitted.scale;
    reinterpret_cast<float16*>(scratch.image + format.key_minima())[channel_place(channel)] = fitted.minimum;
    auto& channels = memory_of(scratch).values.channels;
    const float reciprocal = fitted.reciprocal(bits);
    channels[0][channel] = reciprocal;
    channels[1][channel] = load(fitted.minimum) * reciprocal;
    channels[2][channel] = load(fitted.minimum);
    channels[3][channel] = load(fitted.scale);
  }

  struct four {
    float of[4];
  };
  [[nodiscard]] __device__ __forceinline__ static four load_four(float const* from) {
    const float4 loaded = *reinterpret_cast<float4 const*>(from);
    return {{loaded.x, loaded.y, loaded.z, loaded.w}};
  }

  __device__ __forceinline__ void encode_keys(scratch_type& scratch, lanes_type const& at,
                                              float const (&merged)[slots][8], std::uint64_t retained) const {
    row_memory const& memory = memory_of(scratch);
    std::uint32_t codes[slots][8];
    float squares[slots] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float const* const from = memory.values.channels[0] + 8 * at.octet() + 4 * half;
      const four reciprocal = load_four(from);
      const four offset = load_four(from + Channels);
      const four minimum = load_four(from + 2 * Channels);
      const four scale = load_four(from + 3 * Channels);
#pragma unroll
      for (int slot = 0; slot < slots; ++slot) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const std::uint32_t code =
              elements_type::nearest(multiply_add(merged[slot][4 * half + j], reciprocal.of[j], -offset.of[j]));
          codes[slot][4 * half + j] = code;
          const float steps = __uint_as_float(code) - elements_type::integers_only;
          const float decoded = multiply_add(steps, scale.of[j], minimum.of[j]);
          squares[slot] = multiply_add(decoded, decoded, squares[slot]);
        }
      }
    }
    const float decoded_square = elements_type::sum_of_row(squares);
    const int layer = at.place_in_quarter();
    if (layer < rows.layers()) {
      const int token = at.token(0);
      merged_row const& row = memory.keys[token].row;
      const float factor = length_factor(row.square, decoded_square);
      const std::uint16_t norm = elements_type::half_of((layer == 0 ? row.lengths.first : row.lengths.second) * factor);
      reinterpret_cast<std::uint16_t*>(scratch.image + key_norms(layer))[token_place(token)] =
          (retained >> token & 1U) != 0 ? std::uint16_t{0} : norm;
    }
    elements_type::store_keys(at, codes, reinterpret_cast<std::uint32_t*>(scratch.image + format.key_codes()));
  }

  // Values.

  /// Of the group that the thread's octet is in, for its token in slot_of_group().
  [[nodiscard]] __device__ __forceinline__ static interval<float> range_of_group(lanes_type const& at,
                                                                                 float const (&merged)[slots][8]) {
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
    const bool upper = at.slot_of_group() / 2 != 0;
    const bool odd = at.slot_of_group() % 2 != 0;
    float lower[2];
    float higher[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      lower[i] = fminf(upper ? low[2 + i] : low[i], __shfl_xor_sync(0xffffffffU, upper ? low[i] : low[2 + i], 1));
      higher[i] = fmaxf(upper ? high[2 + i] : high[i], __shfl_xor_sync(0xffffffffU, upper ? high[i] : high[2 + i], 1));
    }
    interval<float> range{
        fminf(odd ? lower[1] : lower[0], __shfl_xor_sync(0xffffffffU, odd ? lower[0] : lower[1], 2)),
        fmaxf(odd ? higher[1] : higher[0], __shfl_xor_sync(0xffffffffU, odd ? higher[0] : higher[1], 2))};
#pragma unroll
    for (int distance = 4; distance < group_octets; distance *= 2) {
      range.minimum = fminf(range.minimum, __shfl_xor_sync(0xffffffffU, range.minimum, distance));
      range.maximum = fmaxf(range.maximum, __shfl_xor_sync(0xffffffffU, range.maximum, distance));
    }
    return range;
  }

  __device__ __forceinline__ void encode_values(scratch_type& scratch, lanes_type const& at,
                                                float const (&merged)[slots][8], std::uint64_t retained) const {
    const interval<float> range = range_of_group(at, merged);
    const int token_of_group = at.token(at.slot_of_group());
    const bool is_apart = (retained >> token_of_group & 1U) != 0;
    const interval<float> bounds = without_signed_zeros(is_apart ? interval<float>{0.0F, 0.0F} : range);
    const float width = value_group::width_of(bounds, bits);
    const float reciprocal = 1.0F / width;
    const float step = width * value_group::share(bits);
    const std::uint16_t ratio = elements_type::half_of(bounds.minimum * reciprocal * 15.0F);
    std::uint32_t codes[slots][8];
    float squares[slots];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      const int from = at.lane_of_group(slot) % 32;
      const float by = __shfl_sync(0xffffffffU, reciprocal, from);
      const float its_ratio = unpack_pair<float16>(__shfl_sync(0xffffffffU, std::uint32_t{ratio}, from)).x;
      const float its_step = __shfl_sync(0xffffffffU, step, from);
      const float offset = its_ratio * value_group::share(bits);
      std::uint32_t(&own)[8] = codes[slot];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        own[j] = elements_type::nearest(multiply_add(merged[slot][j], by, -offset));
      }
      const std::uint32_t low = elements_type::four_bytes(own[0], own[1], own[2], own[3]);
      const std::uint32_t high = elements_type::four_bytes(own[4], own[5], own[6], own[7]);
      const unsigned sum = __dp4a(low, 0x01010101U, __dp4a(high, 0x01010101U, 0U));
      const unsigned sum_of_squares = __dp4a(low, low, __dp4a(high, high, 0U));
      squares[slot] =
          value_group::decoded_square(its_step, its_ratio, static_cast<int>(sum), static_cast<int>(sum_of_squares));
    }
    const float decoded_square = elements_type::sum_of_row(squares);
    const float own_factor = length_factor(scratch.values[at.token(0)].square, decoded_square);
    const float factor = __shfl_sync(0xffffffffU, own_factor, at.lane_of(at.slot_of_group()) % 32);
    if (at.octet() % group_octets < 4) {
      const int place = at.octet() / group_octets * tokens + token_place(token_of_group);
      reinterpret_cast<std::uint16_t*>(scratch.image + format.value_ratios())[place] = ratio;
      const two_lengths<float> lengths = scratch.values[token_of_group].lengths;
      for (int layer = 0; layer < rows.layers(); ++layer) {
        const float length = (layer == 0 ? lengths.first : lengths.second) * factor;
        const std::uint16_t scale = elements_type::half_of(length * step * static_cast<float>(1 << (bits - 1)));
        reinterpret_cast<std::uint16_t*>(scratch.image + key_norms(layer) + 2 * tokens)[place] =
            is_apart ? std::uint16_t{0} : scale;
      }
    }
    elements_type::store_values(at, codes, reinterpret_cast<std::uint16_t*>(scratch.image + format.value_codes()));
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
