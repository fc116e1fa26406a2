// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Encodes streams of weights in one pass over them: the CUDA kernel for program/weights/encode.hpp, on sm_80 and
/// later. The bytes are the same. Where fewer mantissa bits are kept, weights are rounded as they are split
/// (detail/split_kept_rows.cuh): of bf16 with 3 bits 0.92 of the lossless rate, of sm_80's code 0.90, and 0.38 with
/// normalizers.
///
/// Bytes: a bf16 weight is read once, and 1.33 bytes are written, so that 4.24 TB/s of copy allow at most 2.54 TB/s of
/// input; the histogram reads 512 to 1023 blocks of the tensor as well. Measured are 1.55 on an H200, and 1.36 by the
/// code for sm_80. Instructions: 25 a weight, which keep the integer pipes busy. Of 360 microseconds for 512 MiB the
/// codebook's one thread block takes 27, most of them to fetch its instructions. With an exact zero among a hundred
/// weights it has 0.96 of that speed, and the code for sm_80 0.90 of its own: the code of zeros is made like those of
/// neighbouring exponents (detail/exponent_offsets.cuh). While rows with a zero were made one exponent at a time, they
/// had 0.60 and 0.57.
///
/// A thread block takes one tile of blocks after the other, one block in each warp. Words and escapes stay in shared
/// memory until a look-back over the tiles before has found where the tile's payloads go.
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/program/weights/detail/count_exponents.cuh>
#include <tessera/program/weights/detail/exponent_offsets.cuh>
#include <tessera/program/weights/detail/split_kept_rows.cuh>
#include <tessera/program/weights/encode.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/crc32c.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/look_back.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/weights/neuzip.hpp>

namespace tessera {
inline namespace v0 {

/// Encodes blocks of up to 32 tensors, one block in each warp, and stores them. Mantissa: how many bits of mantissas
/// are kept, and how they are rounded.
template <class T, neuzip_encode_policy Policy, class Mantissa = keep_mantissa<scalar_traits<T>::mantissa_bits>>
struct encode_weights_on_warps {
  static constexpr int lanes = Policy.threads;
  static constexpr int blocks_per_multiprocessor = Policy.blocks_per_multiprocessor;
  static constexpr int from_architecture = Policy.from;
  static constexpr int before_architecture = Policy.before;
  static constexpr int warps = lanes / 32;
  static constexpr int most_tasks = 32;
  static_assert(warps <= 32, "tessera: a tile's blocks are positioned by one warp");

  using steps = weight_block_steps<T, Mantissa>;
  using portable = encode_weights<T, Mantissa>;
  /// How sixteen bytes of weights are split.
  using rows = split_rows_of<T, Mantissa>;
  static constexpr bool is_lossless = Mantissa::template is_lossless<T>;  ///< whether nothing is rounded away
  static constexpr int row_weights = steps::row_weights;
  static constexpr int weights_per_lane = steps::weights_per_lane;
  static constexpr int pairs = rows::pairs;
  static constexpr int granularity = max(max(steps::residual_planes.granularity(), steps::code_planes.granularity()),
                                         steps::exponent_planes.granularity());

  /// The most words of a block. Words and escapes are written from the end; those of a row may run over before it is
  /// noticed.
  static constexpr int words_end = weight_stream_spec::largest_words + 32 * pairs;
  /// The most escapes of a block that is not raw.
  static constexpr int escapes_end = weight_stream_spec::largest_escapes;

  /// The coded block of a warp.
  struct warp_scratch {
    /// The words of the coder.
    alignas(4) std::uint16_t words[words_end];
    std::uint32_t escapes[escapes_end];  ///< as weight_escape packs them
  };
  struct scratch_type {
    pair_coder::encode_table table;  ///< the table for pushing
    warp_scratch warp[warps];        ///< the scratch of each warp
    std::uint32_t size[warps];       ///< payload of each warp's block, in units of 16 bytes
    std::int64_t position;           ///< position of the tile's first payload, in units of 16 bytes
    std::int64_t tile;               ///< the current tile, counted over all tensors
    int task;                        ///< the task that the tile belongs to
  };

  encode_task<T> task[most_tasks];  ///< the tensors of the launch
  int tasks;
  std::int64_t tiles;        ///< tiles of all tensors
  std::uint32_t* next_tile;  ///< workspace: the next tile to be taken; zero at first
  status_word* status;

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (thread_index() == 0) {
      scratch.task = -1;
    }
    while (true) {
      group.sync();  // all warps have read the last tile's scratch
      int const loaded = scratch.task;
      if (thread_index() == 0) {
        scratch.tile = atomicAdd(next_tile, 1u);
      }
      group.sync();
      std::int64_t const tile = scratch.tile;
      if (tile >= tiles) {
        return;
      }
      int i = 0;
      while (i + 1 < tasks && tile >= task[i + 1].items_before) {
        ++i;
      }
      if (i != loaded) {
        load_table(group, task[i], scratch.table);
        if (thread_index() == 0) {
          scratch.task = i;
        }
      }
      encode_tile(group, task[i], tile - task[i].items_before, scratch);
    }
  }

 private:
  __device__ static void load_table(cuda_block<lanes> const& group, encode_task<T> const& t,
                                    pair_coder::encode_table& table) {
    for (int symbol = static_cast<int>(thread_index()); symbol < 256; symbol += lanes) {
      table.entry[symbol] = t.is_rans != 0 ? t.table->entry[symbol] : pair_coder::encode_entry{0, 0};
    }
    group.sync();
  }

  /// What a warp must keep of its block until the tile's position is known.
  struct coded_block {
    std::uint32_t state;
    int words;
    int escapes;
    int coded;
    int payload_bytes;
    bool raw;
  };

  __device__ __forceinline__ static int escapes_offset(bool rans, int coded, int words) {
    return rans ? (weight_stream_spec::states_bytes + 2 * words + 3) & ~3 : coded / 2;
  }

  __device__ void encode_tile(cuda_block<lanes> const& group, encode_task<T> const& t, std::int64_t tile,
                              scratch_type& scratch) const {
    int const warp = uniform(static_cast<int>(thread_index() / 32));
    int const lane = cuda_warp{}.lane;
    std::int64_t const blocks = t.block_count();
    std::int64_t const block = tile * warps + warp;
    coded_block coded{};
    if (block < blocks) {
      coded = encode_block(t, block, scratch.table, scratch.warp[warp]);
    }
    if (lane == 0) {
      scratch.size[warp] = static_cast<std::uint32_t>(coded.payload_bytes / weight_stream_spec::payload_alignment);
    }
    group.sync();
    std::uint32_t size = lane < warps ? scratch.size[lane] : 0;
    std::uint32_t const upto = detail::warp_inclusive_sum(lane, size);
    std::uint32_t const total = shuffle(upto, 31);
    std::uint32_t const before = shuffle(upto - size, warp);
    if (warp == 0) {
      auto const position = static_cast<std::int64_t>(look_back(t.tile_sums, tile, total, lane));
      if (lane == 0) {
        scratch.position = position;
      }
      if ((tile + 1) * warps >= blocks) {
        finish_header(t, t.payload_offset + (position + total) * weight_stream_spec::payload_alignment);
      }
    }
    group.sync();
    if (block < blocks) {
      store_block(t, block, scratch.position + before, coded, scratch.warp[warp]);
    }
  }

  /// The warp that knows where the stream ends writes the rest of the header.
  __device__ void finish_header(encode_task<T> const& t, std::int64_t bytes) const {
    auto* const header = reinterpret_cast<weight_stream_header*>(t.stream);
    cuda_warp const warp;
    if (warp.lane == 0) {
      header->total_bytes = static_cast<std::uint64_t>(bytes);
      *t.stream_bytes = bytes;
      if (t.reports_full != 0 && bytes > t.capacity) {
        warp.report(status, status_code::capacity_exceeded, bytes);
      }
    }
    sync_warp();
    constexpr int covered = sizeof(weight_stream_header) - sizeof(header->header_checksum);
    std::uint32_t const checksum = warp_crc32c<4, covered / 4>(warp.lane, t.stream);
    if (warp.lane == 0) {
      header->header_checksum = checksum;
    }
  }

  /// A block of the tensor. Lossless ones need no more than where their weights are.
  __device__ __forceinline__ static weight_block<T> source_of(encode_task<T> const& t, std::int64_t block, int coded) {
    if constexpr (!is_lossless) {
      return t.block(block, coded);
    }
    weight_block<T> source;
    source.weights = t.weights + (block << t.log2_block);
    source.count = t.weights_in(block);
    source.coded = coded;
    return source;
  }

  __device__ __forceinline__ coded_block encode_block(encode_task<T> const& t, std::int64_t block,
                                                      pair_coder::encode_table const& table,
                                                      warp_scratch& scratch) const {
    int const lane = cuda_warp{}.lane;
    auto const& header = *reinterpret_cast<weight_stream_header const*>(t.stream);
    exponent_window const window{header.window_base, header.window_extra};
    T const* const weights = t.weights + (block << t.log2_block);
    int const count = t.weights_in(block);
    coded_block result{};
    result.coded = (count + granularity - 1) & ~(granularity - 1);
    result.state = pair_coder::start();
    std::uint8_t* const planes = t.stream + t.planes_offset + (block << t.log2_block) * steps::residual_planes.bits / 8;
    weight_block<T> const source = source_of(t, block, result.coded);
    bool const rans = t.is_rans != 0;
    if (count == 1 << t.log2_block && reinterpret_cast<std::uintptr_t>(weights) % 16 == 0) {
      encode_rows<true>(rans, window, source, lane, table, planes, scratch, result);
    } else {
      encode_rows<false>(rans, window, source, lane, table, planes, scratch, result);
    }
    int const escapes_begin = escapes_offset(rans, result.coded, result.words);
    int const raw_bytes = (result.coded * steps::exponent_planes.bits / 8 + 15) & ~15;
    result.payload_bytes = (escapes_begin + 4 * result.escapes + 15) & ~15;
    result.raw = result.raw || result.payload_bytes > raw_bytes;
    result.payload_bytes = result.raw ? raw_bytes : result.payload_bytes;
    sync_warp();
    return result;
  }

  /// The state of a warp's coding.
  struct coding {
    std::uint32_t table_begin;  ///< shared address of the encode table
    std::uint32_t cursor;       ///< shared address after the next word
    std::uint32_t below;        ///< mask of the lanes below this one
  };

  // In what follows, Plain means that a block is whole and its weights aligned.

  /// Encodes all rows from the last to the first: writes planes to memory, words and escapes to the scratch.
  template <bool Plain>
  __device__ __forceinline__ static void encode_rows(bool rans, exponent_window window, weight_block<T> const& source,
                                                     int lane, pair_coder::encode_table const& table,
                                                     std::uint8_t* planes, warp_scratch& scratch, coded_block& result) {
    T const* const weights = source.weights;
    int const count = source.count;
    coding state{shared_address(&table), shared_address(scratch.words + words_end), lanes_below()};
    std::uint32_t const words_after = state.cursor;
    int const last_row = result.coded / row_weights - 1;
    int first = last_row / rows::rows * rows::rows;
    std::uint32_t next[rows::rows][4];
    load_rows<Plain>(weights, first, count, lane, next);
    std::uint32_t begun = 0;  // a unit of kept bits of which not all rows have come
    for (; first >= 0; first -= rows::rows) {
      std::uint32_t now[rows::rows][4];
#pragma unroll
      for (int r = 0; r < rows::rows; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          now[r][i] = next[r][i];
        }
      }
      if (first > 0) {
        load_rows<Plain>(weights, first - rows::rows, count, lane, next);
      }
      rows split;
      if constexpr (!is_lossless) {
        split.residuals[0] = begun;
      }
#pragma unroll
      for (int r = rows::rows - 1; r >= 0; --r) {
        if (Plain || first + r <= last_row) {
          std::uint32_t exponents[pairs];
          if constexpr (is_lossless) {
            split.row(r, now[r], exponents);
          } else {
            split.row(r, first + r, lane, now[r], source, exponents);
          }
          int const position = (first + r) * row_weights + lane * weights_per_lane;
          encode_row<Plain>(rans, window, exponents, position, count, table, state, scratch, result);
          result.raw = result.raw || words_after - state.cursor > 2 * weight_stream_spec::largest_words;
        }
      }
      if constexpr (!Plain) {
        split.store(planes, result.coded, first, last_row, lane);
      } else {
        split.store(planes, result.coded, first, first + rows::rows - 1, lane);
      }
      if constexpr (!is_lossless) {
        begun = split.residuals[0];
      }
    }
    result.words = static_cast<int>(words_after - state.cursor) / 2;
  }

  template <bool Plain>
  __device__ __forceinline__ static void load_rows(T const* weights, int first, int count, int lane,
                                                   std::uint32_t (&words)[rows::rows][4]) {
#pragma unroll
    for (int r = 0; r < rows::rows; ++r) {
      int const position = (first + r) * row_weights + lane * weights_per_lane;
      if constexpr (Plain) {
        uint4 const values = load_once(reinterpret_cast<uint4 const*>(weights + position));
        words[r][0] = values.x;
        words[r][1] = values.y;
        words[r][2] = values.z;
        words[r][3] = values.w;
      } else {
        load_row(weights, position, count, words[r]);
      }
    }
  }

  template <bool Plain>
  __device__ __forceinline__ static void encode_row(bool rans, exponent_window window,
                                                    std::uint32_t const (&exponents)[pairs], int position, int count,
                                                    pair_coder::encode_table const& table, coding& state,
                                                    warp_scratch& scratch, coded_block& result) {
    std::uint32_t offset[pairs];
    bool odd = detail::find_offsets<(Policy.from >= 900)>(window, exponents, offset);
    std::uint32_t symbol[pairs];
    pair_coder::encode_entry entry[pairs];
    std::uint32_t odd_entry = 0;
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      symbol[i] = (offset[i] | (offset[i] >> 12)) & 0xffu;
      uint2 const loaded = load_shared_u32x2(multiply_add(symbol[i], 8, state.table_begin));
      entry[i] = {loaded.x, loaded.y};
      odd_entry |= entry[i].packed;
    }
    odd = odd || static_cast<std::int32_t>(odd_entry) < 0;
    if constexpr (!Plain) {
      odd = odd || position + weights_per_lane > count;
    }
    if (any_of_warp(odd)) {
      encode_odd_row(window, exponents, position, count, table, symbol, entry, scratch, result);
    }
    if (!rans) {
      store_codes(symbol, position, scratch);
    } else if (!result.raw) {
#pragma unroll
      for (int i = pairs - 1; i >= 0; --i) {
        push(entry[i], state, result.state);
      }
    }
  }

  /// Pushes as pair_coder::push does, for 32 lanes.
  __device__ __forceinline__ static void push(pair_coder::encode_entry entry, coding& to, std::uint32_t& state) {
    std::uint32_t const distance = state + (entry.packed & (~0u << pair_coder::spill_shift));
    bool const spills = static_cast<std::int32_t>(distance) < 0;
    std::uint32_t const mask = ballot_of_warp(spills);
    to.cursor = multiply_add(static_cast<std::uint32_t>(__popc(mask)), ~1u, to.cursor);
    if (spills) {
      store_shared_u16(multiply_add(static_cast<std::uint32_t>(__popc(mask & to.below)), 2, to.cursor), state);
      state >>= pair_coder::word_bits;
    }
    // The instruction shifts by the low five bits alone.
    std::uint32_t const quotient = __funnelshift_r(__umulhi(state, entry.reciprocal), 0, entry.packed);
    state = multiply_add(quotient, entry.packed >> pair_coder::spill_shift, state + ((entry.packed >> 5) & 0x1fffu));
  }

  /// Stores codes of the fixed coder where the words would be: 4096 bytes.
  __device__ __forceinline__ static void store_codes(std::uint32_t const (&symbol)[pairs], int position,
                                                     warp_scratch& scratch) {
    int const lane_row = position / weights_per_lane;
    constexpr bit_plane codes_plane = steps::code_planes.plane(0);
    std::int64_t const bit = codes_plane.bit_offset(lane_row / 32, lane_row % 32, 0);
    auto* const codes = reinterpret_cast<std::uint8_t*>(scratch.words) + bit / 8;
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      codes[i] = static_cast<std::uint8_t>(symbol[i]);
    }
  }

  /// Encodes a row with a weight past the end, the exponent from elsewhere, an escape, or a pair that the table does
  /// not have.
  __device__ __forceinline__ static void encode_odd_row(exponent_window window, std::uint32_t const (&exponents)[pairs],
                                                        int position, int count, pair_coder::encode_table const& table,
                                                        std::uint32_t (&symbol)[pairs],
                                                        pair_coder::encode_entry (&entry)[pairs], warp_scratch& scratch,
                                                        coded_block& result) {
    std::uint32_t escaped = 0;  // bit i: whether weight i is listed as an escape
#pragma unroll
    for (int i = 0; i < pairs; ++i) {
      bool const has_first = position + 2 * i < count;
      bool const has_second = position + 2 * i + 1 < count;
      std::uint32_t const first = has_first ? window.code(exponents[i] & 0xffffu) : 0;
      std::uint32_t const second = has_second ? window.code(exponents[i] >> 16) : 0;
      symbol[i] = pair_symbol(first, second);
      entry[i] = table.entry[symbol[i]];
      if (!pair_coder::can_code(entry[i])) {
        symbol[i] = escape_pair;
        entry[i] = table.entry[escape_pair];
      }
      escaped |= has_first && (symbol[i] & 15u) == exponent_window::escape_code ? 1u << (2 * i) : 0;
      escaped |= has_second && (symbol[i] >> 4) == exponent_window::escape_code ? 2u << (2 * i) : 0;
    }
    int const mine = __popc(escaped);
    int const upto = detail::warp_inclusive_sum(cuda_warp{}.lane, mine);
    int const in_row = shuffle(upto, 31);
    result.escapes += in_row;
    result.raw = result.raw || result.escapes > weight_stream_spec::largest_escapes;
    if (in_row > 0 && !result.raw) {
      int next = escapes_end - result.escapes + upto - mine;
#pragma unroll
      for (int i = 0; i < 2 * pairs; ++i) {
        if (((escaped >> i) & 1u) != 0) {
          std::uint32_t const exponent = i % 2 == 0 ? exponents[i / 2] & 0xffffu : exponents[i / 2] >> 16;
          scratch.escapes[next++] = weight_escape::pack(static_cast<std::uint32_t>(position + i), exponent, false);
        }
      }
    }
  }

  __device__ __forceinline__ void store_block(encode_task<T> const& t, std::int64_t block, std::int64_t position,
                                              coded_block const& coded, warp_scratch const& scratch) const {
    int const lane = cuda_warp{}.lane;
    int const words = coded.raw ? weight_block_index::raw : coded.words;
    int const escapes = coded.raw ? 0 : coded.escapes;
    if (lane == 0) {
      reinterpret_cast<uint2*>(t.stream + t.index_offset)[block] =
          make_uint2(static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(words | (escapes << 16)));
    }
    std::int64_t const begin = t.payload_offset + position * weight_stream_spec::payload_alignment;
    if (begin + coded.payload_bytes > t.capacity) {
      return;
    }
    std::uint8_t* const payload = t.stream + begin;
    if (coded.raw) {
      store_raw(t, block, coded, payload);
      return;
    }
    auto* const out = reinterpret_cast<std::uint32_t*>(payload);
    bool const rans = t.is_rans != 0;
    int const escapes_begin = escapes_offset(rans, coded.coded, words) / 4;
    int const first_word = words_end - coded.words;
    if (rans) {
      out[lane] = coded.state;
    }
    for (int i = lane + (rans ? weight_stream_spec::states_bytes / 4 : 0); i < coded.payload_bytes / 4; i += 32) {
      std::uint32_t value = 0;
      if (i >= escapes_begin) {
        int const entry = i - escapes_begin;
        value = entry < escapes ? scratch.escapes[escapes_end - escapes + entry] : 0;
      } else if (rans) {
        int const word = 2 * (i - weight_stream_spec::states_bytes / 4);
        value = scratch.words[first_word + word];
        value |= word + 1 < words ? std::uint32_t{scratch.words[first_word + word + 1]} << 16 : 0;
      } else {
        value = reinterpret_cast<std::uint32_t const*>(scratch.words)[i];
      }
      out[i] = value;
    }
  }

  __device__ __noinline__ static void store_raw(encode_task<T> const& t, std::int64_t block, coded_block const& coded,
                                                std::uint8_t* payload) {
    weight_block<T> const source = source_of(t, block, coded.coded);
    cuda_warp const warp;
    steps::clear(warp, payload, coded.payload_bytes);
    portable::store_raw(warp, source, payload);
  }
};

}  // namespace v0
}  // namespace tessera
