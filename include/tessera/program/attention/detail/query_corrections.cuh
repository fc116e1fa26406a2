// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `correct_tiles`: makes the scores of mean queries and their ranges, which query_corrections makes elsewhere, by
/// tensor cores. A thread block takes 128 keys and up to 256 means of a key head.
///
/// A score is factor * (mean query . key - mean query . mean key). Means of queries are rounded to the type of keys, so
/// that both are operands as they are, and products are exact. encode_tiles makes the second product, which is the same
/// for all keys, and leaves it beside the mean (`mean_operands`).
///
/// Cost for M means and N keys of C channels: 2 M N C operations, and 4.125 M N bytes of results, the floor: 16384
/// queries and keys of a head take 8.25 MiB. A warp keeps 32 keys in registers, and a block reads each mean once for
/// its 128 keys: C / 64 bytes of L2 for each score. Means are copied to shared memory one stage ahead. A lane's scores
/// of 16 keys are 16 bytes that lie next to each other, because keys have the slots of value_slot().
///
/// H200, 32 heads of 16384 queries and keys of 128 channels, when means were those of 64 queries, twice as many: 281 us
/// at the profiler's clock, in which 527 MB were written: 0.4 of what memory could. Smoothing queries took 245 us more
/// than not to; with means of 128 queries it takes 145.
/// It is not the writes alone: without them a fourth of the time goes, and memory that a block writes in one piece, or
/// 128 means at a time in shared memory, change nothing. Keys as left operands take two thirds of the instructions (200
/// in place of 310 for 512 scores), but their pieces must be moved to registers that follow each other while they
/// arrive, so that a block waits for them nine times: 1.2 times as long. Of the 310 instructions 78 moved pieces of
/// means between registers and 16 looked whether keys exist; means that lie as ldmatrix takes them need no moves, and
/// whole tiles look at nothing: about 200 instructions, and 0.4 % less time of an attention.
/// With means of 128 queries it takes 133 us for these heads, with the launch before it that hardly does anything, and
/// 101 where a causal mask leaves half of the scores. What else was tried is in tuning/attention/attention.hpp.
/// Memory bounds it: with wgmma, and the next tiles of keys on their way meanwhile, it takes as long, and 62 us less
/// only if nothing is written.
///
/// Where no query sees keys from some distance behind it on (`keys_behind`), scores that nobody sees are not made: half
/// of them where queries are as many as keys.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/attention/detail/head_lanes.cuh>
#include <tessera/program/attention/detail/mean_operands.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/row_operands.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/row_operands.hpp>

namespace tessera {
inline namespace v0 {

/// Makes corrections of tiles of keys. T: bfloat16 or float16; keys begin at multiples of 16 bytes, their channels lie
/// next to each other. Channels: 64, 128 or 256, the next that has room for the head's channels.
template <class T, int Channels>
struct correct_tiles {
  static constexpr int lanes = 256;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;
  static constexpr int blocks_per_multiprocessor = Channels <= 128 ? 2 : 1;
  static constexpr int tile = tiled_heads<T>::tile;  ///< keys of a block
  static constexpr int stage = 64;                   ///< means that a block has in shared memory at a time
  static constexpr int part = 256;                   ///< the most means of a block
  static constexpr int columns = 4;                  ///< warps beside each other, which share the keys of a tile

  struct scratch_type {
    /// Means of two stages, each with its product behind the last channel. Rows are 16 bytes longer than a multiple of
    /// 128, so that matrices of 8 rows of 16 bytes are in all banks.
    alignas(16) T means[2][stage][Channels + piece_numbers];
    float2 ranges[2][columns][stage];  ///< the lowest and the highest score of means with a warp's keys
  };

  tiled_heads<T> keys;          ///< keys as they are stored
  std::int32_t key_heads;       ///< key heads of all sequences
  fast_divisor key_tiles;       ///< tiles of a key head
  fast_divisor parts;           ///< blocks that share the means of a key head
  fast_divisor blocks_of_head;  ///< means of a query head
  std::int32_t rows;            ///< means of a key head: all blocks of queries of its query heads
  std::int32_t channels;        ///< channels of a head
  /// The mean of a block has scores with keys below this and the number of its last query in its head plus 1;
  /// most_keys_behind where all are seen.
  std::int32_t keys_behind;
  float factor;              ///< what products are multiplied by: the softmax's scale, in base 2
  mean_operands<T> means;    ///< means of all key heads
  float* corrections;        ///< batch x query heads x blocks of queries x padded keys
  correction_range* ranges;  ///< batch x query heads x blocks of queries x tiles

  static constexpr std::int32_t most_keys_behind = 1 << 30;  ///< every query sees all keys

  /// How many thread blocks the program has: one for each tile of keys and part of the means.
  [[nodiscard]] TESSERA_FN std::int64_t count() const {
    return std::int64_t{key_heads} * key_tiles.value() * parts.value();
  }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    let_next_kernel_start();
    wait_for_stream();
    auto const index = static_cast<std::int32_t>(which);
    std::int32_t const list = index / parts;  // parts of the same keys are neighbours, which find them in L2
    std::int32_t const head = list / key_tiles;
    std::int32_t const at = list - head * key_tiles.value();
    std::int32_t const end = min((index - list * parts.value() + 1) * part, rows);
    std::int32_t row = seen_from((index - list * parts.value()) * part, end, at);
    if (row >= end) {
      return;
    }
    group.sync();  // all have read what the block before left in shared memory
    begin_means(group.lane, head, row, end, scratch.means[0]);
    lane_keys const mine(group.lane);
    uint4 words[tiles][blocks];
    load_keys(head, at, mine, words);
    std::int32_t const tokens = keys.tokens(head, at);
    std::int32_t const left = tokens - mine.key - mine.lane % 4 * 2;
    bool const has_end = tokens < tile;
    std::int32_t last = row;
#pragma unroll 1
    for (int now = 0; row < end; now ^= 1) {
      std::int32_t const next = seen_from(row + stage, end, at);
      async_copy_wait_all();
      group.sync();
      if (next < end) {
        begin_means(group.lane, head, next, end, scratch.means[now ^ 1]);
      }
      if (last != row) {
        write_ranges(group.lane, head, at, last, end, scratch.ranges[now ^ 1]);
      }
#pragma unroll 1
      for (int of_warp = mine.row; of_warp < mine.row + stage / 2; of_warp += 16) {
        if (row + of_warp < end && is_seen(row + of_warp, 16, end, at)) {
          multiply({head, at, row, of_warp, end, left, has_end}, mine, words, scratch.means[now], scratch.ranges[now]);
        }
      }
      last = row;
      row = next;
      if (row >= end) {
        group.sync();
        write_ranges(group.lane, head, at, last, end, scratch.ranges[now]);
      }
    }
  }

 private:
  static constexpr int tiles = 4;               ///< tiles of eight keys that a warp has
  static constexpr int blocks = Channels / 32;  ///< blocks of 32 channels

  /// The scores that a warp makes at a time.
  struct place {
    std::int32_t head;  ///< key head
    std::int32_t at;    ///< tile of keys
    std::int32_t row;   ///< the stage's first mean, counted in the key head
    int first;          ///< the warp's first mean in the stage
    std::int32_t end;   ///< one past the last mean of the block
    std::int32_t left;  ///< keys of the tile from the lane's first one on
    bool has_end;       ///< whether some of the tile's keys do not exist
  };

  /// Where the lane's keys and means lie in a tile and a stage.
  struct lane_keys {
    int lane;  ///< of its warp
    int key;   ///< the warp's first key
    int row;   ///< the warp's first mean
    TESSERA_FN explicit lane_keys(int of_block)
        : lane(of_block % 32), key(of_block / 32 % 4 * (8 * tiles)), row(of_block / 128 * (stage / 2)) {}
  };

  /// Loads the operands of the warp's keys, zeros for keys and channels that do not exist.
  __device__ __forceinline__ void load_keys(std::int32_t head, std::int32_t at, lane_keys mine,
                                            uint4 (&words)[tiles][blocks]) const {
    std::int32_t const end = keys.in_memory(head, at, keys.tokens(head, at));
    T const* const from = keys.first(head, at);
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      int const key = mine.key + i * 8 + mine.lane / 4;
      auto const* const row = reinterpret_cast<uint4 const*>(from + key * keys.heads.strides[2]);
#pragma unroll
      for (int block = 0; block < blocks; ++block) {
        int const piece = row_piece(mine.lane, block);
        words[i][block] = load_or_zero(row + piece, key < end && piece * piece_numbers < channels);
      }
    }
  }

  /// Whether a query of any of `count` means from `row` on sees a key of a tile.
  [[nodiscard]] __device__ __forceinline__ bool is_seen(std::int32_t row, std::int32_t count, std::int32_t end,
                                                        std::int32_t at) const {
    if (keys_behind == most_keys_behind) {
      return true;
    }
    std::int32_t const last = min(row + count, end) - 1;
    std::int32_t const head = last / blocks_of_head;
    std::int32_t const first = head * blocks_of_head.value();
    std::int32_t const block = row < first ? blocks_of_head.value() - 1 : last - first;
    return std::int64_t{at} * tile < std::int64_t{block + 1} * block_mean::tokens + keys_behind;
  }
  /// The first stage from `row` on with a mean that has a score to be made; `end` or more if there is none.
  [[nodiscard]] __device__ __forceinline__ std::int32_t seen_from(std::int32_t row, std::int32_t end,
                                                                  std::int32_t at) const {
    while (row < end && !is_seen(row, stage, end, at)) {
      row += stage;
    }
    return row;
  }

  /// Begins to copy up to 64 means and their products, from number `row` of a key head on.
  __device__ __forceinline__ void begin_means(int lane, std::int32_t head, std::int32_t row, std::int32_t end,
                                              T (&to)[stage][Channels + piece_numbers]) const {
    constexpr int pieces = Channels / piece_numbers;
    constexpr int together = lanes / pieces;  // means that all lanes copy at a time
    std::int64_t const first = std::int64_t{head} * rows + row;
    int const channel = lane % pieces * piece_numbers;
    T const* from = means.row(first + lane / pieces, channels) + channel;
#pragma unroll
    for (int mean = lane / pieces, turn = 0; turn < stage / together; ++turn, mean += together) {
      bool const exists = row + mean < end && channel < means.padded(channels);
      async_copy_16_or_zero(&to[mean][channel], exists ? from : means.first, exists);
      from += together * means.row_elements(channels);
    }
    if (lane < stage && row + lane < end) {
      async_copy_16(&to[lane][Channels], means.row(first + lane, channels) + means.padded(channels));
    }
  }

  /// Makes the scores of 16 of the warp's means, and leaves their ranges.
  __device__ __forceinline__ void multiply(place const& of, lane_keys mine, uint4 const (&words)[tiles][blocks],
                                           T const (&staged)[stage][Channels + piece_numbers],
                                           float2 (&found)[columns][stage]) const {
    float sums[tiles][4] = {};
    int const of_lane = of.first + mine.lane / 4;
    // The lane gives a row of 16 bytes: of means 0 to 7, 8 to 15, and the same of the next 8 places.
    std::uint32_t const from =
        detail::plain_shared_address(&staged[of.first + mine.lane % 16][mine.lane / 16 * piece_numbers]);
#pragma unroll
    for (int block = 0; block < 2 * blocks; ++block) {
      std::uint32_t left[4];
      load_matrix_x4(left, from + block * 32);
#pragma unroll
      for (int i = 0; i < tiles; ++i) {
        uint4 const& piece = words[i][block / 2];
        warp_mma<T>::multiply(sums[i], left, {block % 2 == 0 ? piece.x : piece.z, block % 2 == 0 ? piece.y : piece.w});
      }
    }
    std::int64_t const padded = std::int64_t{key_tiles.value()} * tile;
    float* const to =
        corrections + (std::int64_t{of.head} * rows + of.row) * padded + of.at * tile + mine.key + mine.lane % 4 * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const mean = of_lane + 8 * half;
      float const less = *reinterpret_cast<float const*>(&staged[mean][Channels]);
      float scores[tiles][2];
#pragma unroll
      for (int i = 0; i < 2 * tiles; ++i) {
        scores[i / 2][i % 2] = __fmaf_rn(factor, sums[i / 2][2 * half + i % 2], -less);
      }
      if (of.has_end) {
#pragma unroll
        for (int i = 0; i < 2 * tiles; ++i) {
          scores[i / 2][i % 2] = i / 2 * 8 + i % 2 < of.left ? scores[i / 2][i % 2] : 0.0F;
        }
      }
      bool const exists = of.row + mean < of.end;
#pragma unroll
      for (int i = 0; i < tiles; i += 2) {
        if (exists) {
          *reinterpret_cast<float4*>(to + mean * padded + 8 * i) = {scores[i][0], scores[i][1], scores[i + 1][0],
                                                                    scores[i + 1][1]};
        }
      }
      find_range(mine, mean, scores, found);
    }
  }

  /// Leaves the range of the scores of a mean that four lanes have.
  __device__ __forceinline__ static void find_range(lane_keys mine, int mean, float const (&scores)[tiles][2],
                                                    float2 (&found)[columns][stage]) {
    float least = scores[0][0];
    float highest = scores[0][0];
#pragma unroll
    for (int i = 1; i < 2 * tiles; ++i) {
      least = minimum_or_nan(least, scores[i / 2][i % 2]);
      highest = maximum_or_nan(highest, scores[i / 2][i % 2]);
    }
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      least = minimum_or_nan(least, shuffle_xor(least, distance));
      highest = maximum_or_nan(highest, shuffle_xor(highest, distance));
    }
    if (mine.lane % 4 == 0) {
      found[mine.key / (8 * tiles)][mean] = {least, highest};
    }
  }

  /// Writes the ranges of a stage's means over the whole tile.
  __device__ __forceinline__ void write_ranges(int lane, std::int32_t head, std::int32_t at, std::int32_t row,
                                               std::int32_t end, float2 const (&found)[columns][stage]) const {
    if (lane < stage && row + lane < end && is_seen(row + lane / 16 * 16, 16, end, at)) {
      float least = found[0][lane].x;
      float highest = found[0][lane].y;
#pragma unroll
      for (int i = 1; i < columns; ++i) {
        least = minimum_or_nan(least, found[i][lane].x);
        highest = maximum_or_nan(highest, found[i][lane].y);
      }
      correction_range const range = correction_range::of(least, highest);
      ranges[(std::int64_t{head} * rows + row + lane) * key_tiles.value() + at] = range;
    }
  }
};

}  // namespace v0
}  // namespace tessera
