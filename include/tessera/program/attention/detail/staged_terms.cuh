// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `staged_terms`: what a pipeline stage of warpgroup_attention has of the terms that are added to scores, and
/// `term_loader`, which loads it: scores of mean queries, and tiles of a dense_bias of 16 bits.
///
/// Bytes of a warpgroup and a tile of 128 keys: 512 of corrections and 16 of their range, 16 KiB of biases.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>

namespace tessera {
inline namespace v0 {

/// Whether biases are loaded in tiles: those of a dense_bias of 16 bits.
template <class Bias>
inline constexpr bool has_bias_tiles = false;
/// A dense_bias of 16 bits has tiles.
template <class T>
inline constexpr bool has_bias_tiles<dense_bias<T>> = is_16_bit_float<T>;

/// A warpgroup's biases of a tile: two boxes of 64 rows x 64 keys, each swizzled by 128 bytes.
struct bias_tile {
  static constexpr int rows = 64;                                              ///< rows of a warpgroup
  static constexpr int box_columns = 64;                                       ///< keys of a box
  static constexpr int box_bytes = rows * box_columns * 2;                     ///< bytes of a box
  static constexpr int bytes = box_bytes * attention_tile_keys / box_columns;  ///< bytes of all boxes
  alignas(1024) unsigned char boxes[bytes];                                    ///< the boxes, one after the other

  /// The lane's pairs of biases of keys 8 j + 2 (lane % 4) and the next one, j being `even` and one more: of rows
  /// lane / 4 and lane / 4 + 8 of a warp's 16 for `even`, then of the same rows for the next j. All lanes of the warp.
  /// `first`: where_of() the lane.
  __device__ __forceinline__ static void load_pairs(std::uint32_t first, int even, std::uint32_t (&pairs)[4]) {
    load_matrix_x4(
        pairs, (first ^ static_cast<std::uint32_t>(even % 8 * 16)) + static_cast<std::uint32_t>(even / 8 * box_bytes));
  }
  /// The address of 16 bytes in the first box that a lane gives for j = 0 and 1: 16 bytes number c of row r lie at
  /// 16 (c ^ (r % 8)) of the row.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t where_of(int warp, int lane) const {
    return detail::plain_shared_address(boxes) +
           static_cast<std::uint32_t>((16 * warp + lane % 16) * 128 + 16 * (lane / 16 ^ lane % 8));
  }
};

/// Nothing, in place of what is not loaded.
struct no_terms {};

/// The terms of a stage, for each of `Warpgroups` warpgroups. Terms: a score_terms.
template <class Terms, int Warpgroups>
struct staged_terms {
  /// Biases of a warpgroup.
  using tile_type = std::conditional_t<Terms::has_tiles, bias_tile, no_terms>;
  /// Scores of the mean query of a warpgroup.
  struct alignas(16) correction_row {
    float values[attention_tile_keys];  ///< of each key of the tile, in the order of value_slot()
    correction_range range;             ///< their range
  };
  /// Scores of the mean query, or nothing.
  using correction_type = std::conditional_t<Terms::has_corrections, correction_row, no_terms>;

  tile_type biases[Warpgroups];             ///< of each warpgroup
  correction_type corrections[Warpgroups];  ///< of each warpgroup
};

/// Where the terms of a work item's queries begin. They are looked up once for all of its tiles: one thread starts all
/// loads, and is late if it looks them up for each, which takes 120 (128 channels) to 140 instructions more.
struct term_rows {
  std::int32_t block;     ///< the first block of 64 queries, counted over all heads, each with an even number
  std::int32_t bias_row;  ///< the row of this block's biases
  std::int32_t blocks;    ///< blocks of the head from there on; a thread block takes the first of them
};

/// Where terms lie in memory.
template <class Terms>
struct term_loader {
  /// Bytes of the scores of a mean query and a tile of keys.
  static constexpr int bytes_of_corrections = attention_tile_keys * static_cast<int>(sizeof(float));
  /// Bytes of their range.
  static constexpr int bytes_of_range = static_cast<int>(sizeof(correction_range));
  static constexpr int bytes = (Terms::has_corrections ? bytes_of_corrections + bytes_of_range : 0) +
                               (Terms::has_tiles ? bias_tile::bytes : 0);  ///< of a warpgroup and a tile
  static constexpr bool is_none = bytes == 0;                              ///< whether nothing is loaded

  std::conditional_t<Terms::has_tiles, tensor_map, no_terms> biases;  ///< rows of biases
  std::int32_t sequence_rows;                                         ///< rows of biases from sequence to sequence
  std::int32_t head_rows;                                             ///< rows of biases from head to head
  float const* corrections;                   ///< quantized_queries::corrections: batch, query head, block, padded keys
  correction_range const* correction_ranges;  ///< quantized_queries::correction_ranges

  /// Looks up the rows of a thread block whose first block of 64 queries is number `block` of a head, counted over all
  /// sequences. `heads`, `blocks`: of a sequence and of a head.
  [[nodiscard]] __device__ __forceinline__ term_rows rows_of(std::int32_t head, std::int32_t heads, std::int32_t block,
                                                             std::int32_t blocks) const {
    term_rows found{head * (divide_up(blocks, together) * together) + block, 0, blocks - block};
    if constexpr (Terms::has_tiles) {
      std::int32_t const sequence = head / heads;
      found.bias_row = sequence * sequence_rows + (head - sequence * heads) * head_rows + block * bias_tile::rows;
    }
    return found;
  }
  /// Starts to load the terms of a warpgroup and a tile.
  template <class Staged>
  __device__ __forceinline__ void load(Staged& to, int warpgroup, term_rows const& rows, std::int32_t tile,
                                       std::int32_t padded_keys, shared_barrier& full) const {
    if constexpr (Terms::has_corrections) {
      std::int64_t const row = (rows.block + warpgroup) / together;
      auto& staged = to.corrections[warpgroup];
      load_bytes(staged.values, corrections + row * padded_keys + tile * attention_tile_keys, bytes_of_corrections,
                 full);
      load_bytes(&staged.range, correction_ranges + row * (padded_keys / attention_tile_keys) + tile, bytes_of_range,
                 full);
    }
    if constexpr (Terms::has_tiles) {
#pragma unroll
      for (int box = 0; box < attention_tile_keys / bias_tile::box_columns; ++box) {
        load_box(
            to.biases[warpgroup].boxes + box * bias_tile::box_bytes, biases, full,
            {tile * attention_tile_keys + box * bias_tile::box_columns, rows.bias_row + warpgroup * bias_tile::rows});
      }
    }
  }

 private:
  static constexpr int together = block_mean::tokens / bias_tile::rows;  ///< blocks of 64 queries that share a mean
};

}  // namespace v0
}  // namespace tessera
