// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `correct_tiles`: makes the scores of mean queries and their ranges, which query_corrections makes elsewhere, by
/// tensor cores. A thread block takes 128 keys and up to 256 means of a key head.
///
/// A score is factor * (mean query . key - mean query . mean key). Means of queries are rounded to the type of keys, so
/// that both are operands as they are, and products are exact. encode_tiles makes the second product, which is the same
/// for all keys, and leaves it beside the mean (`mean_operands`).
///
/// Cost for M means and N keys of C channels: 2 M N C operations, and 4.125 M N bytes of results, the floor: 16384
/// queries and keys of a head take 16.5 MiB. A warp keeps 32 keys in registers, as left operands, which take no moves
/// from one mean to the next; and a block reads each mean once for its 128 keys: C / 64 bytes of L2 for each score.
/// Means are copied to shared memory one stage ahead. A lane has scores of four keys that are neighbours in the order
/// of value_slot(): 16 bytes for each mean.
///
/// H200, 32 heads of 16384 queries and keys of 128 channels: 281 us at the profiler's clock, in which 527 MB are
/// written: 0.4 of what memory could.
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
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/row_operands.cuh>
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
    /// Means of two stages, each with its product behind the last channel. Rows are 64 bytes longer than a multiple of
    /// 128, so that two of them are in all banks.
    alignas(16) T means[2][stage][Channels + 32];
    float2 ranges[2][columns][stage];  ///< the lowest and the highest score of means with a warp's keys
  };

  tiled_heads<T> keys;          ///< keys as they are stored
  std::int32_t key_heads;       ///< key heads of all sequences
  fast_divisor key_tiles;       ///< tiles of a key head
  fast_divisor parts;           ///< blocks that share the means of a key head
  fast_divisor blocks_of_head;  ///< means of a query head
  std::int32_t rows;            ///< means of a key head: all blocks of queries of its query heads
  std::int32_t channels;        ///< channels of a head
  /// The mean of 64 queries has scores with keys below 64 + this and 64 times its number in its head; most_keys_behind
  /// where all are seen.
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
    uint4 words[tiles][2][blocks];
    load_keys(head, at, mine, words);
    std::int32_t const left = keys.tokens(head, at) - mine.key;
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
      float* to = of_mean(head, at, row, mine);
#pragma unroll 1
      for (int of_warp = mine.row; of_warp < mine.row + stage / 2; of_warp += 8 * turns) {
        if (row + of_warp < end && is_seen(row + of_warp, 8 * turns, end, at)) {
          multiply({row, of_warp, end, left, to}, mine, words, scratch.means[now], scratch.ranges[now]);
        }
        to += 8 * turns * padded();
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
  static constexpr int tiles = 2;               ///< tiles of sixteen keys that a warp has
  static constexpr int turns = 2;               ///< eights of means that a warp multiplies at a time
  static constexpr int blocks = Channels / 32;  ///< blocks of 32 channels

  /// The scores that a warp makes at a time.
  struct place {
    std::int32_t row;   ///< the stage's first mean, counted in the key head
    int first;          ///< the warp's first mean in the stage
    std::int32_t end;   ///< one past the last mean of the block
    std::int32_t left;  ///< keys of the tile from the warp's first one on
    float* to;          ///< where the lane's scores of its first mean go
  };

  /// Where the lane's keys and means lie in a tile and a stage.
  struct lane_keys {
    int lane;  ///< of its warp
    int key;   ///< the warp's first key
    int row;   ///< the warp's first mean
    TESSERA_FN explicit lane_keys(int of_block)
        : lane(of_block % 32), key(of_block / 32 % 4 * (16 * tiles)), row(of_block / 128 * (stage / 2)) {}
    /// The key of the lane's row `half` of tile number `i`, counted from the warp's first one.
    [[nodiscard]] TESSERA_FN int of(int i, int half) const {
      return lane / 16 * 16 + row_of_lane(lane / 4, 2 * i + half);
    }
  };

  /// Loads the operands of the warp's keys, zeros for keys and channels that do not exist.
  __device__ __forceinline__ void load_keys(std::int32_t head, std::int32_t at, lane_keys mine,
                                            uint4 (&words)[tiles][2][blocks]) const {
    std::int32_t const end = keys.in_memory(head, at, keys.tokens(head, at));
    T const* const from = keys.first(head, at);
#pragma unroll
    for (int i = 0; i < 2 * tiles; ++i) {
      int const key = mine.key + mine.of(i / 2, i % 2);
      auto const* const row = reinterpret_cast<uint4 const*>(from + key * keys.heads.strides[2]);
#pragma unroll
      for (int block = 0; block < blocks; ++block) {
        int const piece = row_piece(mine.lane, block);
        words[i / 2][i % 2][block] = load_or_zero(row + piece, key < end && piece * piece_numbers < channels);
      }
    }
  }

  /// Numbers from the scores of a mean to those of the next.
  [[nodiscard]] __device__ __forceinline__ std::int64_t padded() const {
    return std::int64_t{key_tiles.value()} * tile;
  }
  /// Where the lane's scores of its first mean of a stage go.
  [[nodiscard]] __device__ __forceinline__ float* of_mean(std::int32_t head, std::int32_t at, std::int32_t row,
                                                          lane_keys mine) const {
    std::int64_t const mean = std::int64_t{head} * rows + row + mine.row + mine.lane % 4 * 2;
    return corrections + mean * padded() + at * tile + mine.key + mine.lane / 4 * 4;
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
                                              T (&to)[stage][Channels + 32]) const {
    constexpr int pieces = Channels / piece_numbers;
    constexpr int together = lanes / pieces;  // means that all lanes copy at a time
    std::int64_t const first = std::int64_t{head} * rows + row;
    int const channel = lane % pieces * piece_numbers;
    T const* from = means.row(first + lane / pieces, channels) + channel;
#pragma unroll
    for (int mean = lane / pieces, turn = 0; turn < stage / together; ++turn, mean += together) {
      bool const exists = row + mean < end && channel < channels;
      async_copy_16_or_zero(&to[mean][channel], exists ? from : means.first, exists);
      from += together * means.row_elements(channels);
    }
    if (lane < stage && row + lane < end) {
      async_copy_16(&to[lane][Channels], means.row(first + lane, channels) + channels);
    }
  }

  /// Makes the scores of 16 of the warp's means, and leaves their ranges.
  __device__ __forceinline__ void multiply(place const& of, lane_keys mine, uint4 const (&words)[tiles][2][blocks],
                                           T const (&staged)[stage][Channels + 32],
                                           float2 (&found)[columns][stage]) const {
    float sums[turns][tiles][4] = {};
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      int const channel = row_piece(mine.lane, block) * piece_numbers;
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        auto const mean = *reinterpret_cast<uint4 const*>(&staged[of.first + 8 * turn + mine.lane / 4][channel]);
#pragma unroll
        for (int i = 0; i < tiles; ++i) {
          multiply_pieces<T>(sums[turn][i], words[i][0][block], words[i][1][block], mean);
        }
      }
    }
    int const of_lane = of.first + mine.lane % 4 * 2;
    float largest[2][2 * turns];  // of scores, and of scores with the other sign
#pragma unroll
    for (int which = 0; which < 2 * turns; ++which) {
      int const further = which / 2 * 8 + which % 2;
      float const less = *reinterpret_cast<float const*>(&staged[of_lane + further][Channels]);
      float scores[2 * tiles];
#pragma unroll
      for (int i = 0; i < 2 * tiles; ++i) {
        float const score = __fmaf_rn(factor, sums[which / 2][i / 2][i % 2 * 2 + which % 2], -less);
        scores[i] = mine.of(i / 2, i % 2) < of.left ? score : 0.0F;
      }
      store_once_if(of.row + of_lane + further < of.end, reinterpret_cast<float4*>(of.to + further * padded()),
                    {scores[0], scores[1], scores[2], scores[3]});
      largest[0][which] =
          maximum_or_nan(maximum_or_nan(-scores[0], -scores[1]), maximum_or_nan(-scores[2], -scores[3]));
      largest[1][which] = maximum_or_nan(maximum_or_nan(scores[0], scores[1]), maximum_or_nan(scores[2], scores[3]));
    }
    leave_ranges(of, mine, largest, found);
  }

  /// Leaves the ranges of 16 means. Of the eight numbers that a lane has, it gives half to another lane and takes the
  /// others' from there, three times, until one is left.
  __device__ __forceinline__ static void leave_ranges(place const& of, lane_keys mine, float const (&largest)[2][4],
                                                      float2 (&found)[columns][stage]) {
    static_assert(turns == 2);
    bool const has_highest = mine.lane / 16 != 0;
    bool const has_second_turn = mine.lane / 8 % 2 != 0;
    bool const has_second = mine.lane / 4 % 2 != 0;
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      four[i] = larger_of_exchanged(largest[0][i], largest[1][i], has_highest, 16);
    }
    float two[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      two[i] = larger_of_exchanged(four[i], four[i + 2], has_second_turn, 8);
    }
    float const one = larger_of_exchanged(two[0], two[1], has_second, 4);
    int const mean = of.first + (has_second_turn ? 8 : 0) + mine.lane % 4 * 2 + (has_second ? 1 : 0);
    float2& range = found[mine.key / (16 * tiles)][mean];
    (has_highest ? range.y : range.x) = has_highest ? one : -one;
  }
  /// The larger of the lane's own number, the second if `is_second`, and of the lane's at a distance that has the same.
  __device__ __forceinline__ static float larger_of_exchanged(float first, float second, bool is_second, int distance) {
    return maximum_or_nan(is_second ? second : first, shuffle_xor(is_second ? first : second, distance));
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
