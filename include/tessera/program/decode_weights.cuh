// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Decodes lossless streams of weights at the speed of memory: the CUDA version of program/decode_weights.hpp, for sm_80 and later.
///
/// Bytes: a bf16 weight at 10.7 bits is read once and written once, 3.33 bytes, so 4.24 TB/s of copy make at most 2.54 TB/s of
/// output; 2.01 on an H200. Instructions: about 13 a weight, so 132 x 4 x 1.75e9 issue slots make at most 4.5 TB/s. What holds it
/// back is waiting for DRAM: reads and writes of 4224 blocks at once get 79 percent of what a copy gets.
///
/// For each tensor in its share a thread block makes a look-up table of 4096 entries in shared memory; then each warp takes one block of
/// weights after the other, copies its words to shared memory and pops 32 pairs at a time (program/popping_lanes.cuh).
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/decode_task.cuh>
#include <tessera/program/decode_weights.hpp>
#include <tessera/program/join_rows.cuh>
#include <tessera/program/popping_lanes.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/crc32c.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tuning/neuzip.hpp>

namespace tessera {
inline namespace v0 {

template <class T, neuzip_decode_policy Policy>
struct decode_weights_on_warps {
  static constexpr int lanes = Policy.threads;
  static constexpr int blocks_per_multiprocessor = Policy.blocks_per_multiprocessor;
  static constexpr int from_architecture = Policy.from;
  static constexpr int before_architecture = Policy.before;
  static constexpr int warps = lanes / 32;
  static constexpr int most_tasks = 32;
  using rows = join_rows<T>;
  /// Words that the rows handled at a time may take: what must be at hand before, and how far a corrupt stream may run over.
  static constexpr int words_a_pass = 32 * rows::pairs * rows::rows;
  static constexpr int staged_words = Policy.words - words_a_pass;
  static_assert(staged_words >= 2 * words_a_pass && Policy.words % 8 == 0,
                "tessera: too few words of shared memory a warp");

  using mantissa = keep_mantissa<scalar_traits<T>::mantissa_bits>;
  using steps = weight_block_steps<T, mantissa>;
  using portable = decode_weights<T, mantissa>;

  struct scratch_type {
    std::uint32_t table[pair_coder::slots];
    alignas(16) std::uint16_t words[warps][Policy.words];
    std::uint16_t frequency[256];
    std::uint16_t cumulative[256];
    int next;     ///< block to take
    int skipped;  ///< 1 if blocks are left that are not plain
  };

  decode_task<T> task[most_tasks];
  int tasks;
  std::int64_t blocks;
  std::int64_t shares;
  status_word* status;

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    if (tasks == 1) {
      // All thread blocks move along the tensor together, which DRAM likes better than shares far apart.
      const int run = static_cast<int>(min((blocks + shares - 1) / shares, std::int64_t{warps}));
      const std::int64_t first = which * run;
      if (first < blocks) {
        decode_part(group, task[0], task[0].first_block + first, static_cast<int>(blocks - first),
                    {run, static_cast<int>(shares) * run}, scratch);
      }
      return;
    }
    const std::int64_t begin = blocks * which / shares;
    const std::int64_t end = blocks * (which + 1) / shares;
    for (int i = 0; i < tasks; ++i) {
      const std::int64_t before = task[i].blocks_before;
      const std::int64_t after = i + 1 < tasks ? task[i + 1].blocks_before : blocks;
      const std::int64_t first = max(begin, before) - before;
      const std::int64_t last = min(end, after) - before;
      if (first < last) {
        decode_part(group, task[i], task[i].first_block + first, static_cast<int>(last - first), {warps, warps},
                    scratch);
      }
    }
  }

 private:
  /// The blocks of a thread block: `run` neighbours, then the next `run` at a distance of `stride`, and so on.
  struct runs {
    int run;
    int stride;

    /// The i-th block that is taken.
    __device__ __forceinline__ int position_of(int taken) const { return (taken / run) * stride + taken % run; }
    __device__ __forceinline__ bool contains(std::int64_t position) const { return position % stride < run; }
  };

  /// Blocks first_block + i for all i < count that lie in `which`.
  __device__ void decode_part(cuda_block<lanes> const& group, decode_task<T> const& t, std::int64_t first_block,
                              int count, runs which, scratch_type& scratch) const {
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    // Each warp's first block is on its way while the table is made.
    if (which.position_of(warp) < count) {
      prefetch_block(t, first_block + which.position_of(warp));
    }
    group.sync();  // the last part's table is no longer needed
    const bool sound = prepare(group, t, scratch);
    // The last warp has the least to do where there are few blocks.
    if (sound && first_block == t.first_block && warp == warps - 1) {
      check_sums(t);
    }
    if (!sound) {
      zero_blocks(t, first_block, count);
      return;
    }
    const exponent_window window{t.header().window_base, t.header().window_extra};
    if (t.is_rans() && window.is_contiguous() && t.is_aligned()) {
      const std::int64_t last = t.block_count() - 1 - first_block;
      if (warp == warps - 1 && last >= 0 && last < count && which.contains(last) && !t.is_whole(first_block + last)) {
        decode_any_block(t, window, first_block + last, scratch.table, scratch.words[warp]);
      }
      decode_plain_blocks(t, window, first_block, count, which, warp, scratch);
    } else {
      scratch.skipped = 1;
    }
    group.sync();
    if (scratch.skipped != 0) {
      decode_other_blocks(t, window, first_block, count, which, warp, scratch);
    }
  }

  /// block: its number in the tensor, as on the host.
  __device__ void report(status_code code, std::int64_t block) const { cuda_warp{}.report(status, code, block); }

  /// Checks all of the header but its checksum, and fills the table. False if there is nothing to decode by.
  __device__ bool prepare(cuda_block<lanes> const& group, decode_task<T> const& t, scratch_type& scratch) const {
    const bool rans = t.is_rans();
    per_lane<bool, cuda_block<lanes>> sound;
    per_lane<int, cuda_block<lanes>> frequency;
    const int symbol = static_cast<int>(threadIdx.x);
    frequency[0] = 0;
    sound[0] = t.header_fits();
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
      scratch.next = warps;
      scratch.skipped = 0;
    }
    const bool all_sound = all(group, sound);
    group.sync();
    if (all_sound && rans) {
      fill_table(scratch);
    }
    group.sync();
    return all_sound;
  }

  __device__ static void fill_table(scratch_type& scratch) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int symbol = static_cast<int>(threadIdx.x) / 32; symbol < 256; symbol += warps) {
      const std::uint32_t frequency = scratch.frequency[symbol];
      const std::uint32_t first = scratch.cumulative[symbol];
      for (std::uint32_t offset = lane; offset < frequency; offset += 32) {
        scratch.table[first + offset] = popping_lanes::entry(frequency, offset, static_cast<std::uint32_t>(symbol));
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
      report(status_code::bad_header, 0);
    }
  }

  /// What stands where nothing sound could be decoded.
  __device__ void zero_blocks(decode_task<T> const& t, std::int64_t first_block, int count) const {
    const std::int64_t first = (first_block - t.first_block) << t.log2_block;
    const std::int64_t last =
        first + (static_cast<std::int64_t>(count - 1) << t.log2_block) + t.weights_in(first_block + count - 1);
    for (std::int64_t i = first + threadIdx.x; i < last; i += lanes) {
      t.weights[i] = from_bits<T>(0);
    }
    report(status_code::bad_header, 0);
  }

  /// Has a block's planes brought to L2. (Doing so for every block was slower: 1.36 instead of 2.0 TB/s.)
  __device__ __forceinline__ static void prefetch_block(decode_task<T> const& t, std::int64_t block) {
    if (cuda_warp{}.lane == 0) {
      prefetch_to_l2(t.planes_of(block), t.weights_in(block) * exponent_split<T>::residual_bits / 8);
    }
  }

  /// Where time goes: whole blocks whose words all fit the scratch, with at most one escape a lane. No calls in here: what has to
  /// survive one is spilled for every block, which cost 15 percent.
  __device__ __forceinline__ void decode_plain_blocks(decode_task<T> const& t, exponent_window window,
                                                      std::int64_t first_block, int count, runs which, int warp,
                                                      scratch_type& scratch) const {
    const int lane = cuda_warp{}.lane;
    for (int mine = which.position_of(warp); mine < count; mine = which.position_of(take_block(scratch, lane))) {
      const std::int64_t block = first_block + mine;
      const int coded = 1 << t.log2_block;
      if (!t.is_whole(block)) {
        continue;  // the tensor's last, which the last warp has done
      }
      const block_parts parts = t.parts_of(block, coded);
      if (!is_plain(parts)) {
        scratch.skipped = 1;
        continue;
      }
      T* const weights = t.weights_of(block);
      if (!pop_plain_rows(t.stream + parts.begin, t.planes_of(block), window, parts, coded, scratch.table,
                          scratch.words[warp], weights)) {
        refuse_block(t, block, weights, coded);
      }
    }
  }

  __device__ __forceinline__ void refuse_block(decode_task<T> const& t, std::int64_t block, T* weights,
                                               int count) const {
    __syncwarp();
    for (int i = cuda_warp{}.lane; i < count; i += 32) {
      weights[i] = from_bits<T>(0);
    }
    report(status_code::corrupt_stream, block);
  }

  /// All blocks that decode_plain_blocks does not take.
  __device__ __noinline__ void decode_other_blocks(decode_task<T> const& t, exponent_window window,
                                                   std::int64_t first_block, int count, runs which, int warp,
                                                   scratch_type& scratch) const {
    const bool plain = t.is_rans() && window.is_contiguous() && t.is_aligned();
    for (int taken = warp; which.position_of(taken) < count; taken += warps) {
      const std::int64_t block = first_block + which.position_of(taken);
      const bool done = plain && (!t.is_whole(block) || is_plain(t.parts_of(block, 1 << t.log2_block)));
      if (!done) {
        decode_any_block(t, window, block, scratch.table, scratch.words[warp]);
      }
    }
  }

  __device__ __forceinline__ static bool is_plain(block_parts const& parts) {
    return parts.fits && parts.words <= staged_words && parts.escapes <= 32;
  }

  __device__ __noinline__ void decode_any_block(decode_task<T> const& t, exponent_window window, std::int64_t block,
                                                std::uint32_t const* table, std::uint16_t* words) const {
    const int count = t.weights_in(block);
    const int coded = (count + granularity - 1) & ~(granularity - 1);
    const block_parts parts = t.parts_of(block, coded);
    if (!parts.fits || !decode_sound_block(t, window, block, parts, count, coded, table, words)) {
      refuse_block(t, block, t.weights_of(block), count);
    }
  }

  __device__ __forceinline__ static bool decode_sound_block(decode_task<T> const& t, exponent_window window,
                                                            std::int64_t block, block_parts const& parts, int count,
                                                            int coded, std::uint32_t const* table,
                                                            std::uint16_t* words) {
    std::uint8_t const* const payload = t.stream + parts.begin;
    std::uint8_t const* const planes = t.planes_of(block);
    T* const weights = t.weights_of(block);
    if (parts.raw) {
      portable::join_raw(cuda_warp{}, payload, planes, nullptr, 0, count, coded, weights);
      return true;
    }
    bool sound = true;
    if (t.is_rans()) {
      sound = pop_rows(payload, planes, window, parts.words, count, coded, table, words, weights);
    } else if (window.is_contiguous() && count == coded && coded % (rows::rows * row_weights) == 0 && t.is_aligned()) {
      copy_rows<true>(payload, planes, window, count, coded, weights);
    } else {
      copy_rows<false>(payload, planes, window, count, coded, weights);
    }
    __syncwarp();
    auto const* const escapes = reinterpret_cast<std::uint32_t const*>(payload + parts.escapes_begin);
    return patch(escapes, parts.escapes, planes, count, coded, weights) && sound;
  }

  static constexpr int row_weights = steps::row_weights;
  __device__ __forceinline__ static int take_block(scratch_type& scratch, int lane) {
    int taken = 0;
    if (lane == 0) {
      taken = atomicAdd(&scratch.next, 1);
    }
    return __shfl_sync(0xffffffffu, taken, 0);
  }

  static constexpr int granularity = max(max(steps::residual_planes.granularity(), steps::code_planes.granularity()),
                                         steps::exponent_planes.granularity());

  // Plain: the block is whole, its output aligned, its window without an exponent from elsewhere.
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
  __device__ __forceinline__ static void stage_words(std::uint16_t const* source, int count, std::uint16_t* words,
                                                     int lane) {
    for (int i = lane * 8; i < min(count, staged_words); i += 32 * 8) {
      async_copy_16(words + i, source + i);
    }
  }

  /// The cursor up to which a pass may begin with `count` words left, of which the first are staged.
  __device__ __forceinline__ static std::uint32_t staged_limit(std::uint32_t words_begin, int count) {
    return words_begin + 2 * (count <= staged_words ? count : staged_words - words_a_pass);
  }

  /// A plain block. Escapes are read long before they are needed.
  __device__ __forceinline__ static bool pop_plain_rows(std::uint8_t const* payload, std::uint8_t const* planes,
                                                        exponent_window window, block_parts const& parts, int coded,
                                                        std::uint32_t const* table, std::uint16_t* words, T* weights) {
    const int word_count = parts.words;
    const int lane = cuda_warp{}.lane;
    const window_exponents<true> exponents(window);
    rows next;
    const int row_count = coded / row_weights;
    stage_words(reinterpret_cast<std::uint16_t const*>(payload + weight_stream_spec::states_bytes), word_count, words,
                lane);
    popping_lanes lanes_state{reinterpret_cast<std::uint32_t const*>(payload)[lane], shared_address(words),
                              shared_address(table), lanes_below()};
    const std::uint32_t words_begin = lanes_state.cursor;
    const std::uint32_t words_end = words_begin + 2 * word_count;
    bool sound = pair_coder::is_state(lanes_state.state);
    next.template load<false>(planes, coded, 0, 0, lane);
    int escape_at = -1;
    kept_value escaped;
    if (lane < parts.escapes) {
      const std::uint32_t entry = reinterpret_cast<std::uint32_t const*>(payload + parts.escapes_begin)[lane];
      escaped.exponent = weight_escape::exponent(entry);
      escape_at = static_cast<int>(weight_escape::position(entry));
      sound = sound && escape_at < coded && escaped.exponent <= exponent_split<T>::largest_exponent;
      escape_at = min(escape_at, coded - 1);
      escaped.residual = steps::residual_at(planes, coded, escape_at);
    }
    T* out = weights + lane * steps::weights_per_lane;
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
        store_once(reinterpret_cast<uint4*>(out + r * row_weights), now.template row<true>(r, codes, exponents));
      }
      out += rows::rows * row_weights;
      // A corrupt stream that took more words than it has goes on with any.
      if (lanes_state.cursor > words_end) {
        sound = false;
        lanes_state.cursor = words_begin;
      }
    }
    sound = sound && pair_coder::finished(lanes_state.state);
    __syncwarp();
    if (escape_at >= 0) {
      weights[escape_at] = steps::join_weight(escaped, nullptr, 0, 0);
    }
    return __all_sync(0xffffffffu, sound) && lanes_state.cursor == words_end;
  }

  /// All other blocks of the rANS coder.
  __device__ __forceinline__ static bool pop_rows(std::uint8_t const* payload, std::uint8_t const* planes,
                                                  exponent_window window, int word_count, int count, int coded,
                                                  std::uint32_t const* table, std::uint16_t* words, T* weights) {
    const int lane = cuda_warp{}.lane;
    const window_exponents<false> exponents(window);
    const int last_row = coded / row_weights - 1;
    auto const* const source = reinterpret_cast<std::uint16_t const*>(payload + weight_stream_spec::states_bytes);
    popping_lanes lanes_state{reinterpret_cast<std::uint32_t const*>(payload)[lane], shared_address(words),
                              shared_address(table), lanes_below()};
    const std::uint32_t words_begin = lanes_state.cursor;
    bool sound = pair_coder::is_state(lanes_state.state);
    int staged = 0;                     // the word at words_begin
    std::uint32_t limit = words_begin;  // the cursor up to which a pass may begin
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
  __device__ __forceinline__ static bool patch(std::uint32_t const* escapes, int escape_count,
                                               std::uint8_t const* planes, int count, int coded, T* weights) {
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
