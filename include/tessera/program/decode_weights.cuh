// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Decodes lossless streams of weights at the speed of memory: the CUDA version of program/decode_weights.hpp, for sm_80 and later.
///
/// Bytes: a bf16 weight at 10.7 bits is read once and written once, 3.33 bytes, so 4.24 TB/s of copy make at most 2.54 TB/s of
/// output. Instructions: about 10 a weight (the coder 8, joining 2), so 132 x 4 x 1.75e9 issue slots make at most 5.9 TB/s.
///
/// A thread block takes one contiguous share of all blocks of all tensors. For each tensor in its share it makes a look-up table of
/// 4096 entries in shared memory; then each warp takes one block of weights after the other, copies its words to shared memory and
/// pops 32 pairs at a time. One look-up gives a pair, one multiplication the next state, one ballot the places of the words.
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/decode_weights.hpp>
#include <tessera/program/join_rows.cuh>
#include <tessera/program/weight_block.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/crc32c.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tuning/neuzip.hpp>

namespace tessera {
inline namespace v0 {

/// One tensor, or a range of its blocks, of a launch. All that follows from the spec is worked out on the host.
template <class T>
struct decode_task {
  weight_stream_header expected;  ///< window, size and checksums apart
  std::uint8_t const* stream;
  std::int64_t stream_bytes;
  T* weights;                 ///< of the first block decoded; 16-byte aligned
  std::int64_t count;         ///< weights of the whole tensor
  std::int64_t first_block;
  std::int64_t blocks_before; ///< of the tasks before this one
  std::int64_t index_offset;
  std::int64_t planes_offset;
  std::int64_t payload_offset;

  static decode_task of(weight_decoding<T> const& decoding, std::int64_t blocks_before) {
    weight_stream_spec const& spec = decoding.spec;
    return {spec.header(),        decoding.stream, decoding.stream_bytes, decoding.weights,     spec.count,
            decoding.first_block, blocks_before,   spec.index_offset(),   spec.planes_offset(), spec.payload_offset()};
  }

  __device__ __forceinline__ weight_stream_header const& header() const {
    return *reinterpret_cast<weight_stream_header const*>(stream);
  }
  __device__ __forceinline__ bool is_rans() const {
    return expected.coder == static_cast<std::uint8_t>(weight_coder::rans_pairs);
  }
  __device__ __forceinline__ int weights_in(std::int64_t block) const {
    return static_cast<int>(min(std::int64_t{1} << expected.log2_block, count - (block << expected.log2_block)));
  }
};

/// Where a thread block's share of `total` items begins.
__device__ __forceinline__ std::int64_t share_begin(std::int64_t which, std::int64_t shares, std::int64_t total) {
  return total * which / shares;
}

template <class T, neuzip_decode_policy Policy>
struct decode_weights_on_warps {
  static constexpr int lanes = Policy.threads;
  static constexpr int blocks_per_multiprocessor = Policy.blocks_per_multiprocessor;
  static constexpr int warps = lanes / 32;
  static constexpr int most_tasks = 24;
  using rows = join_rows<T>;
  /// Words that the rows handled at a time may take: what must be at hand before, and how far a corrupt stream may run over.
  static constexpr int words_a_pass = 32 * rows::pairs * rows::rows;
  static constexpr int staged_words = Policy.words - words_a_pass;
  static_assert(staged_words >= 2 * words_a_pass && Policy.words % 8 == 0, "tessera: too few words of shared memory a warp");

  using mantissa = keep_mantissa<scalar_traits<T>::mantissa_bits>;
  using steps = weight_block_steps<T, mantissa>;
  using portable = decode_weights<T, mantissa>;

  struct scratch_type {
    /// frequency << 20 | second code << 16 | (slot - cumulative) << 4 | first code
    std::uint32_t table[pair_coder::slots];
    alignas(16) std::uint16_t words[warps][Policy.words];
    std::uint16_t frequency[256];
    std::uint16_t cumulative[256];
    int next;
    int is_sound;
  };

  decode_task<T> task[most_tasks];
  int tasks;
  std::int64_t blocks;
  std::int64_t shares;
  status_word* status;

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    const std::int64_t begin = share_begin(which, shares, blocks);
    const std::int64_t end = share_begin(which + 1, shares, blocks);
    for (int i = 0; i < tasks; ++i) {
      const std::int64_t before = task[i].blocks_before;
      const std::int64_t after = i + 1 < tasks ? task[i + 1].blocks_before : blocks;
      const std::int64_t first = max(begin, before) - before;
      const std::int64_t last = min(end, after) - before;
      if (first < last) {
        decode_part(group, task[i], task[i].first_block + first, static_cast<int>(last - first), scratch);
      }
    }
  }

 private:
  __device__ void decode_part(cuda_block<lanes> const& group, decode_task<T> const& t, std::int64_t first_block, int count,
                              scratch_type& scratch) const {
    group.sync();  // the last part's table is no longer needed
    const bool sound = prepare(group, t, scratch);
    // The last warp has the least to do where there are few blocks.
    if (sound && first_block == t.first_block && static_cast<int>(threadIdx.x) >= lanes - 32) {
      check_sums(t);
    }
    const exponent_window window{t.header().window_base, t.header().window_extra};
    if (sound) {
      decode_blocks(t, window, first_block, count, scratch);
    } else {
      zero_blocks(t, first_block, count);
    }
  }

  __device__ void report(decode_task<T> const& t, status_code code, std::int64_t position) const {
    cuda_warp{}.report(status, code, t.blocks_before + position);
  }

  /// Checks all of the header but its checksum, and fills the table. False if there is nothing to decode by.
  __device__ bool prepare(cuda_block<lanes> const& group, decode_task<T> const& t, scratch_type& scratch) const {
    const bool rans = t.is_rans();
    per_lane<bool, cuda_block<lanes>> sound;
    per_lane<int, cuda_block<lanes>> frequency;
    const int symbol = static_cast<int>(threadIdx.x);
    frequency[0] = 0;
    sound[0] = header_fits(t);
    if (rans && symbol < 256) {
      frequency[0] = reinterpret_cast<std::uint16_t const*>(t.stream + sizeof(weight_stream_header))[symbol];
      sound[0] = sound[0] && frequency[0] < static_cast<int>(pair_coder::slots);
      scratch.frequency[symbol] = static_cast<std::uint16_t>(frequency[0]);
    }
    per_lane<int, cuda_block<lanes>> cumulative = frequency;
    const int total = exclusive_sum(group, cumulative);
    if (rans && symbol < 256) {
      scratch.cumulative[symbol] = static_cast<std::uint16_t>(cumulative[0]);
      sound[0] = sound[0] && total == static_cast<int>(pair_coder::slots);
    }
    if (threadIdx.x == 0) {
      scratch.next = 0;
    }
    const bool all_sound = all(group, sound);
    group.sync();
    if (all_sound && rans) {
      fill_table(scratch);
    }
    group.sync();
    return all_sound;
  }

  __device__ static bool header_fits(decode_task<T> const& t) {
    weight_stream_header const& found = t.header();
    weight_stream_header const& expected = t.expected;
    const exponent_window window{found.window_base, found.window_extra};
    return found.magic == expected.magic && found.version == expected.version && found.type == expected.type &&
           found.coder == expected.coder && found.log2_block == expected.log2_block &&
           found.mantissa_kept == expected.mantissa_kept && found.log2_normalizer_block == expected.log2_normalizer_block &&
           found.flags == expected.flags && found.block_count == expected.block_count && found.count == expected.count &&
           window.fits(exponent_split<T>::largest_exponent) &&
           found.total_bytes >= static_cast<std::uint64_t>(t.payload_offset) &&
           found.total_bytes <= static_cast<std::uint64_t>(t.stream_bytes);
  }

  __device__ static void fill_table(scratch_type& scratch) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int symbol = static_cast<int>(threadIdx.x) / 32; symbol < 256; symbol += warps) {
      const std::uint32_t frequency = scratch.frequency[symbol];
      const std::uint32_t first = scratch.cumulative[symbol];
      const std::uint32_t fixed = (frequency << 20) | ((symbol >> 4) << 16) | (symbol & 15);
      for (std::uint32_t offset = lane; offset < frequency; offset += 32) {
        scratch.table[first + offset] = fixed | (offset << 4);
      }
    }
  }

  /// One warp of one thread block for each tensor: the checksums of header and codebook.
  __device__ void check_sums(decode_task<T> const& t) const {
    weight_stream_header const& header = t.header();
    const cuda_warp warp;
    constexpr int covered = sizeof(weight_stream_header) - sizeof(header.header_checksum);
    bool sound = warp_crc32c<4, covered / 4>(warp.lane, t.stream) == header.header_checksum;
    if (t.is_rans()) {
      const std::uint8_t* const codebook = t.stream + sizeof(weight_stream_header);
      sound = warp_crc32c<16, 32>(warp.lane, codebook) == header.content_checksum && sound;
    }
    if (!sound && warp.lane == 0) {
      report(t, status_code::bad_header, 0);
    }
  }

  /// What stands where nothing sound could be decoded.
  __device__ void zero_blocks(decode_task<T> const& t, std::int64_t first_block, int count) const {
    const std::int64_t first = (first_block - t.first_block) << t.expected.log2_block;
    const std::int64_t last = first + (static_cast<std::int64_t>(count - 1) << t.expected.log2_block) +
                              t.weights_in(first_block + count - 1);
    for (std::int64_t i = first + threadIdx.x; i < last; i += lanes) {
      t.weights[i] = from_bits<T>(0);
    }
    report(t, status_code::bad_header, 0);
  }

  __device__ void decode_blocks(decode_task<T> const& t, exponent_window window, std::int64_t first_block, int count,
                                scratch_type& scratch) const {
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = cuda_warp{}.lane;
    while (true) {
      int mine = 0;
      if (lane == 0) {
        mine = atomicAdd(&scratch.next, 1);
      }
      mine = __shfl_sync(0xffffffffu, mine, 0);
      if (mine >= count) {
        return;
      }
      const std::int64_t block = first_block + mine;
      const int in_block = t.weights_in(block);
      T* const weights = t.weights + ((block - t.first_block) << t.expected.log2_block);
      if (!decode_block(t, window, block, in_block, weights, scratch.table, scratch.words[warp])) {
        __syncwarp();
        for (int i = lane; i < in_block; i += 32) {
          weights[i] = from_bits<T>(0);
        }
        report(t, status_code::corrupt_stream, block - t.first_block);
      }
    }
  }

  static constexpr int granularity = max(max(steps::residual_planes.granularity(), steps::code_planes.granularity()),
                                         steps::exponent_planes.granularity());

  /// As weight_stream_spec does for a spec known at run time.
  __device__ __forceinline__ static int escapes_offset(bool rans, int coded, int words) {
    return rans ? (weight_stream_spec::states_bytes + 2 * words + 3) & ~3 : coded / 2;
  }

  __device__ __forceinline__ bool decode_block(decode_task<T> const& t, exponent_window window, std::int64_t block, int count,
                                               T* weights, std::uint32_t const* table, std::uint16_t* words) const {
    const int lane = cuda_warp{}.lane;
    const bool rans = t.is_rans();
    const int coded = (count + granularity - 1) & ~(granularity - 1);
    const auto packed = __ldg(reinterpret_cast<uint2 const*>(t.stream + t.index_offset) + block);
    const int word_count = static_cast<int>(packed.y & 0xffffu);
    const int escape_count = static_cast<int>(packed.y >> 16);
    const bool raw = word_count == weight_block_index::raw;
    const int escapes_begin = raw ? coded * exponent_split<T>::exponent_bits / 8 : escapes_offset(rans, coded, word_count);
    const int payload_bytes = (escapes_begin + 4 * escape_count + 15) & ~15;
    const std::int64_t begin = t.payload_offset + std::int64_t{packed.x} * weight_stream_spec::payload_alignment;
    if ((raw ? escape_count != 0 : word_count > weight_stream_spec::largest_words) ||
        escape_count > weight_stream_spec::largest_escapes ||
        begin + payload_bytes > static_cast<std::int64_t>(t.header().total_bytes)) {
      return false;
    }
    std::uint8_t const* const payload = t.stream + begin;
    std::uint8_t const* const planes =
        t.stream + t.planes_offset + (block << t.expected.log2_block) * exponent_split<T>::residual_bits / 8;
    if (raw) {
      portable::join_raw(cuda_warp{}, payload, planes, nullptr, 0, count, coded, weights);
      return true;
    }
    auto const* const escapes = reinterpret_cast<std::uint32_t const*>(payload + escapes_begin);
    const bool plain = window.is_contiguous() && count == 1 << t.expected.log2_block &&
                       reinterpret_cast<std::uintptr_t>(weights) % 16 == 0;
    bool sound = true;
    if (rans && plain && word_count <= staged_words) {
      sound = pop_plain_rows(payload, planes, window, word_count, coded, table, words, weights);
    } else if (rans) {
      sound = pop_rows(payload, planes, window, word_count, count, coded, table, words, weights);
    } else if (plain) {
      copy_rows<true>(payload, planes, window, count, coded, weights);
    } else {
      copy_rows<false>(payload, planes, window, count, coded, weights);
    }
    __syncwarp();
    return patch(escapes, escape_count, planes, count, coded, weights) && sound;
  }

  static constexpr int row_weights = steps::row_weights;

  // In what follows, plain says that a block is whole, its output aligned and its window without an exponent from elsewhere.

  /// A lane's 16 bytes of one row.
  template <bool Plain>
  __device__ __forceinline__ static void store_row(T* weights, int position, int count, uint4 values) {
    if constexpr (Plain) {
      store_once(reinterpret_cast<uint4*>(weights + position), values);
    } else {
      const std::uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
      for (int i = 0; i < steps::weights_per_lane; ++i) {
        if (position + i < count) {
          constexpr int bits = static_cast<int>(sizeof(T)) * 8;
          using bits_type = typename scalar_traits<T>::bits_type;
          weights[position + i] = from_bits<T>(static_cast<bits_type>(words[i * bits / 32] >> (i * bits % 32)));
        }
      }
    }
  }

  /// Starts copying the first of `count` words, eight at a time.
  __device__ __forceinline__ static void stage_words(std::uint16_t const* source, int count, std::uint16_t* words, int lane) {
    for (int i = lane * 8; i < min(count, staged_words); i += 32 * 8) {
      async_copy_16(words + i, source + i);
    }
  }

  /// The cursor up to which a pass may begin with `count` words left, of which the first are staged.
  __device__ __forceinline__ static std::uint32_t staged_limit(std::uint32_t words_begin, int count) {
    return words_begin + 2 * (count <= staged_words ? count : staged_words - words_a_pass);
  }

  /// One row of pairs for a lane: what pair_coder::pop does, for 32 lanes.
  struct popping {
    std::uint32_t state;
    std::uint32_t cursor;       ///< shared address of the next word
    std::uint32_t table_begin;  ///< shared address of the table
    std::uint32_t below;        ///< mask of the lanes below

    __device__ __forceinline__ void row(std::uint32_t (&codes)[rows::pairs]) {
#pragma unroll
      for (int pair = 0; pair < rows::pairs; ++pair) {
        const std::uint32_t entry = load_shared_u32(table_address<pair_coder::probability_bits>(table_begin, state));
        state = (entry >> 20) * (state >> pair_coder::probability_bits) + ((entry >> 4) & 0xfffu);
        const bool wants = pair_coder::wants_word(state);
        const std::uint32_t mask = __ballot_sync(0xffffffffu, wants);
        const std::uint32_t word = load_shared_u16(multiply_add(__popc(mask & below), 2, cursor));
        state = wants ? (state << 16) | word : state;
        cursor = multiply_add(__popc(mask), 2, cursor);
        codes[pair] = entry & 0x000f000fu;
      }
    }
  };

  /// Where time goes: plain blocks whose words all fit.
  __device__ __forceinline__ static bool pop_plain_rows(std::uint8_t const* payload, std::uint8_t const* planes,
                                                        exponent_window window, int word_count, int coded,
                                                        std::uint32_t const* table, std::uint16_t* words, T* weights) {
    const int lane = cuda_warp{}.lane;
    const window_exponents<true> exponents(window);
    rows next;
    const int row_count = coded / row_weights;
    stage_words(reinterpret_cast<std::uint16_t const*>(payload + weight_stream_spec::states_bytes), word_count, words, lane);
    popping lanes_state{reinterpret_cast<std::uint32_t const*>(payload)[lane], shared_address(words), shared_address(table),
                        lanes_below()};
    const std::uint32_t words_begin = lanes_state.cursor;
    const std::uint32_t words_end = words_begin + 2 * word_count;
    bool sound = pair_coder::is_state(lanes_state.state);
    next.template load<false>(planes, coded, 0, 0, lane);
    weights += lane * steps::weights_per_lane;
    async_copy_wait_all();
    __syncwarp();
#pragma unroll 1
    for (int row = 0; row < row_count; row += rows::rows) {
      const rows now = next;
      if (row + rows::rows < row_count) {
        next.template load<false>(planes, coded, row + rows::rows, 0, lane);
      }
#pragma unroll
      for (int r = 0; r < rows::rows; ++r) {
        std::uint32_t codes[rows::pairs];
        lanes_state.row(codes);
        store_once(reinterpret_cast<uint4*>(weights + r * row_weights), now.template row<true>(r, codes, exponents));
      }
      weights += rows::rows * row_weights;
      // A corrupt stream that took more words than it has goes on with any.
      if (lanes_state.cursor > words_end) {
        sound = false;
        lanes_state.cursor = words_begin;
      }
    }
    sound = sound && pair_coder::finished(lanes_state.state);
    return __all_sync(0xffffffffu, sound) && lanes_state.cursor == words_end;
  }

  /// All other blocks of the rANS coder.
  __device__ __noinline__ static bool pop_rows(std::uint8_t const* payload, std::uint8_t const* planes, exponent_window window,
                                               int word_count, int count, int coded, std::uint32_t const* table,
                                               std::uint16_t* words, T* weights) {
    const int lane = cuda_warp{}.lane;
    const window_exponents<false> exponents(window);
    const int last_row = coded / row_weights - 1;
    auto const* const source = reinterpret_cast<std::uint16_t const*>(payload + weight_stream_spec::states_bytes);
    popping lanes_state{reinterpret_cast<std::uint32_t const*>(payload)[lane], shared_address(words), shared_address(table),
                        lanes_below()};
    const std::uint32_t words_begin = lanes_state.cursor;
    bool sound = pair_coder::is_state(lanes_state.state);
    int staged = 0;                      // the word at words_begin
    std::uint32_t limit = words_begin;   // the cursor up to which a pass may begin
    stage_words(source, word_count, words, lane);
    async_copy_wait_all();
    __syncwarp();
    limit = staged_limit(words_begin, word_count);
#pragma unroll 1
    for (int row = 0; row <= last_row; row += rows::rows) {
      rows now;
      now.template load<true>(planes, coded, row, last_row, lane);
#pragma unroll
      for (int r = 0; r < rows::rows; ++r) {
        if (row + r <= last_row) {
          std::uint32_t codes[rows::pairs];
          lanes_state.row(codes);
          store_row<false>(weights, (row + r) * row_weights + lane * steps::weights_per_lane, count,
                           now.template row<false>(r, codes, exponents));
        }
      }
      if (lanes_state.cursor > limit) {
        // Either more words are needed, or a corrupt stream took more than it has; that one goes on with any.
        const int used = staged + static_cast<int>(lanes_state.cursor - words_begin) / 2;
        sound = sound && used <= word_count;
        staged = used <= word_count ? used & ~7 : 0;
        __syncwarp();
        stage_words(source + staged, word_count - staged, words, lane);
        async_copy_wait_all();
        __syncwarp();
        lanes_state.cursor = words_begin + (used <= word_count ? 2 * (used - staged) : 0);
        limit = staged_limit(words_begin, word_count - staged);
      }
    }
    const int used = staged + static_cast<int>(lanes_state.cursor - words_begin) / 2;
    sound = sound && pair_coder::finished(lanes_state.state);
    return __all_sync(0xffffffffu, sound) && used == word_count;
  }

  /// The fixed coder: the codes of a row lie in a plane like the rest.
  template <bool Plain>
  __device__ __forceinline__ static void copy_rows(std::uint8_t const* payload, std::uint8_t const* planes,
                                                   exponent_window window, int count, int coded, T* weights) {
    constexpr int code_words = rows::pairs == 8 ? 2 : 1;
    constexpr int rows_per_unit = rows::pairs == 2 ? 2 : 1;
    const int lane = cuda_warp{}.lane;
    const window_exponents<Plain> exponents(window);
    const int last_row = coded / row_weights - 1;
    for (int row = 0; row <= last_row; row += rows::rows) {
      rows now;
      std::uint32_t words[rows::rows / rows_per_unit * code_words];
      now.template load<!Plain>(planes, coded, row, last_row, lane);
      load_plane<!Plain, code_words, rows_per_unit, rows::rows>(payload, row, last_row, lane, words);
#pragma unroll
      for (int r = 0; r < rows::rows; ++r) {
        if (Plain || row + r <= last_row) {
          std::uint32_t codes[rows::pairs];
#pragma unroll
          for (int pair = 0; pair < rows::pairs; ++pair) {
            const int bit = (r % rows_per_unit) * 16 + 8 * (pair % 4);
            const std::uint32_t symbol = words[r / rows_per_unit * code_words + pair / 4] >> bit;
            codes[pair] = (symbol & 0xfu) | ((symbol & 0xf0u) << 12);
          }
          store_row<Plain>(weights, (row + r) * row_weights + lane * steps::weights_per_lane, count,
                    now.template row<Plain>(r, codes, exponents));
        }
      }
    }
  }

  /// Writes the weights that escaped, 32 at a time.
  __device__ __forceinline__ static bool patch(std::uint32_t const* escapes, int escape_count, std::uint8_t const* planes,
                                               int count, int coded, T* weights) {
    bool sound = true;
    for (int i = cuda_warp{}.lane; i < escape_count; i += 32) {
      const std::uint32_t entry = escapes[i];
      const int position = static_cast<int>(weight_escape::position(entry));
      const std::uint32_t exponent = weight_escape::exponent(entry);
      if (position < count && exponent <= exponent_split<T>::largest_exponent) {
        const std::uint32_t residual = steps::residual_at(planes, coded, position);
        weights[position] = steps::join_weight({exponent, residual, false}, nullptr, 0, position);
      } else {
        sound = false;
      }
    }
    return __all_sync(0xffffffffu, sound);
  }
};

}  // namespace v0
}  // namespace tessera
