// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `correct_tiles`: makes the scores of mean queries, which query_corrections makes elsewhere, by tensor cores. A
/// thread block takes 128 keys and up to 256 means of a key head.
///
/// A score is factor * (mean query . key - mean query . mean key). Means of queries are rounded to the type of keys, so
/// that both are operands as they are, and products are exact. The second product is the same for all keys.
///
/// Cost for M means and N keys of C channels: 2 M N C operations, and 4 M N bytes of results, the floor: 16384
/// queries and keys of a head take 16 MiB. A warp keeps 32 keys in registers, and a block reads each mean once for its
/// 128 keys: C / 32 bytes of L2 for each score.
///
/// H100, 32 heads of 16384 queries and keys of 128 channels: 377 us at the profiler's clock, in which memory writes
/// half of what it could (515 MB) and multiprocessors issue a third of what they could: neither bounds it. With means
/// in fp32, as three terms in bf16 each, quantization and attention together took 5511 us instead of 5101.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/attention/detail/head_lanes.cuh>
#include <tessera/program/attention/smoothing_terms.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
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

  struct scratch_type {
    /// Means. Rows are 64 bytes longer than a multiple of 128, so that two of them are in all banks.
    alignas(16) T means[stage][Channels + 32];
    float of_mean_key[stage];              ///< products of means with the mean key
    alignas(16) float key_mean[Channels];  ///< the mean key; zeros where keys are not smoothed
  };

  tiled_heads<T> keys;       ///< keys as they are stored
  std::int32_t key_heads;    ///< key heads of all sequences
  fast_divisor key_tiles;    ///< tiles of a key head
  fast_divisor parts;        ///< blocks that share the means of a key head
  std::int32_t rows;         ///< means of a key head: all blocks of queries of its query heads
  std::int32_t channels;     ///< channels of a head
  float factor;              ///< what products are multiplied by: the softmax's scale, in base 2
  float const* query_means;  ///< batch x query heads x blocks of queries x channels
  float const* key_mean;     ///< batch x key heads x channels, or null
  float* corrections;        ///< batch x query heads x blocks of queries x padded keys

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
    std::int32_t const first = (index - list * parts.value()) * part;
    lane_keys const mine(group.lane);
    uint4 words[tiles][blocks];
    load_keys(head, at, mine, words);
    for (int channel = group.lane; channel < Channels; channel += lanes) {
      scratch.key_mean[channel] =
          key_mean != nullptr && channel < channels ? key_mean[std::int64_t{head} * channels + channel] : 0.0F;
    }
    std::int32_t const end = min(first + part, rows);
#pragma unroll 1
    for (std::int32_t row = first; row < end; row += stage) {
      group.sync();
      stage_means(group.lane, std::int64_t{head} * rows + row, end - row, scratch);
      group.sync();
#pragma unroll 1
      for (int of_warp = mine.row; of_warp < mine.row + stage / 2; of_warp += 16) {
        multiply(head, at, row, of_warp, end, mine, words, scratch);
      }
    }
  }

 private:
  static constexpr int tiles = 4;               ///< tiles of eight keys that a warp has
  static constexpr int blocks = Channels / 32;  ///< blocks of 32 channels
  static constexpr int mean_lanes = 8;          ///< lanes that load a mean

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

  /// Leaves up to 64 means, from number `row` of all on, in shared memory; zeros for those that do not exist.
  __device__ __forceinline__ void stage_means(int lane, std::int64_t row, std::int32_t left,
                                              scratch_type& scratch) const {
#pragma unroll
    for (int mean = lane / mean_lanes; mean < stage; mean += lanes / mean_lanes) {
      float const* const from = query_means + (row + mean) * channels;
      float product = 0.0F;
#pragma unroll
      for (int i = 0; i < Channels / 4 / mean_lanes; ++i) {
        int const channel = 4 * (lane % mean_lanes + i * mean_lanes);
        bool const exists = mean < left && channel < channels;
        float4 const of_query = exists ? load_from_l2(reinterpret_cast<float4 const*>(from + channel)) : float4{};
        auto const of_key = *reinterpret_cast<float4 const*>(scratch.key_mean + channel);
        product += of_query.x * of_key.x + of_query.y * of_key.y + of_query.z * of_key.z + of_query.w * of_key.w;
        *reinterpret_cast<uint2*>(&scratch.means[mean][channel]) = {pack_pair<T>(of_query.x, of_query.y),
                                                                    pack_pair<T>(of_query.z, of_query.w)};
      }
#pragma unroll
      for (int distance = mean_lanes / 2; distance > 0; distance /= 2) {
        product += shuffle_xor(product, distance);
      }
      if (lane % mean_lanes == 0) {
        scratch.of_mean_key[mean] = product;
      }
    }
  }

  /// Writes the scores of 16 of the warp's means, from number `first` of a stage on. The stage begins at mean `row` of
  /// the key head.
  __device__ __forceinline__ void multiply(std::int32_t head, std::int32_t at, std::int32_t row, int first,
                                           std::int32_t end, lane_keys mine, uint4 const (&words)[tiles][blocks],
                                           scratch_type const& scratch) const {
    float sums[tiles][4] = {};
    int const of_lane = first + mine.lane / 4;
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      int const channel = row_piece(mine.lane, block) * piece_numbers;
      auto const low = *reinterpret_cast<uint4 const*>(&scratch.means[of_lane][channel]);
      auto const high = *reinterpret_cast<uint4 const*>(&scratch.means[of_lane + 8][channel]);
#pragma unroll
      for (int i = 0; i < tiles; ++i) {
        multiply_pieces<T>(sums[i], low, high, words[i][block]);
      }
    }
    std::int64_t const padded = std::int64_t{key_tiles.value()} * tile;
    std::int32_t const key = mine.key + mine.lane % 4 * 2;
    std::int32_t const left = keys.tokens(head, at) - key;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const mean = of_lane + 8 * half;
      if (row + mean < end) {
        float const less = scratch.of_mean_key[mean];
        float* const to = corrections + (std::int64_t{head} * rows + row + mean) * padded + at * tile + key;
#pragma unroll
        for (int i = 0; i < tiles; ++i) {
          float2 const scores{8 * i < left ? factor * (sums[i][2 * half] - less) : 0.0F,
                              8 * i + 1 < left ? factor * (sums[i][2 * half + 1] - less) : 0.0F};
          *reinterpret_cast<float2*>(to + 8 * i) = scores;
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
