// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warp_operands`: keys and values of attention over codes as a thread block copies them to shared memory for
/// mma.sync, 128 tokens at a time. What does not change from tile to tile is kept in registers. Begun copies are a
/// batch of copies_in_flight. Codes of values that are multiplied as fp16 are widened: by the lane that has copied them
/// itself, so that a sync is needed before they are multiplied, but none before they are widened. Values that lie in
/// memory as they are multiplied, e4m3 codes or the numbers of widen_to_halves, are copied to where that is done.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/program/attention/detail/widen_to_halves.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/sm_80/swizzled_rows.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The lanes' own codes of values that are to be widened.
template <int Chunks, bool AreWidened>
struct values_to_widen {
  tile_chunk<float8_e4m3> v[Chunks];  ///< codes, each lane's own
};
/// None.
template <int Chunks>
struct values_to_widen<Chunks, false> {};

/// How values and tiles of warp_operands lie. Value: the type in which values are multiplied, float16 or float8_e4m3.
/// StoredValue: that in which they lie in memory. AreSwizzled: whether rows of keys and values in shared memory lie one
/// behind the other (tile/cuda/sm_80/swizzled_rows.cuh), not 16 bytes further apart than they are long (staged_tile).
template <class Value, class StoredValue = float8_e4m3, bool AreSwizzled = false>
struct warp_storage {
  using value_type = Value;
  using stored_type = StoredValue;
  template <class T, int Rows, int Columns>
  using tile = std::conditional_t<AreSwizzled, swizzled_rows<T, Rows, Columns>, staged_tile<T, Rows, Columns>>;
};

/// Method: an attention_method with values in e4m3, of which a lane has one scale of keys. Lanes: those of a thread
/// block. Storage: a warp_storage. Rows of codes have whole chunks of 16 bytes, and a channel's values of 128 tokens
/// are neighbours.
template <class Method, int Channels, int Lanes, class Storage>
struct warp_operands {
  using score_code = typename Method::score_code;
  using value_type = typename Storage::value_type;
  using stored_type = typename Storage::stored_type;
  static constexpr int tile_keys = 128;                          ///< tokens of a tile
  static constexpr int stages = 2;                               ///< tiles of keys, and of values, in shared memory
  static constexpr int depth = Channels / codes_in<score_code>;  ///< elements of a row of codes of keys
  static constexpr int width = 64;                               ///< channels of values that are multiplied at a time
  static constexpr int parts = Channels / width;
  static constexpr unsigned key_chunks = static_cast<unsigned>(depth * sizeof(score_code) / 16);  ///< of a row
  static constexpr unsigned in_chunk = 16 / sizeof(stored_type);                                  ///< values of a chunk
  static constexpr unsigned value_chunks = tile_keys / in_chunk;                                  ///< of a channel
  static constexpr int key_rows = Lanes / static_cast<int>(key_chunks);      ///< rows that lanes copy at a time
  static constexpr int value_rows = Lanes / static_cast<int>(value_chunks);  ///< channels that lanes copy at a time
  static constexpr int lane_chunks = Channels / value_rows;                  ///< chunks of values of a lane
  static_assert(tile_keys % key_rows == 0 && width % value_rows == 0,
                "tessera: lanes copy whole rows of keys, and channels of one part of the values");
  /// Codes of keys.
  using key_tile = typename Storage::template tile<score_code, tile_keys, depth>;
  /// Values as they are multiplied, by channels and tokens, or by channels and slots of tokens.
  using value_tile = typename Storage::template tile<value_type, width, tile_keys>[parts];
  static constexpr bool widens = !std::is_same_v<value_type, stored_type>;  ///< whether values are widened
  static_assert((std::is_same_v<value_type, float16> ||
                 std::is_same_v<value_type, float8_e4m3>)&&(!widens || std::is_same_v<stored_type, float8_e4m3>),
                "tessera: values are multiplied as float16 or float8_e4m3, and codes in e4m3 are widened");

  struct scratch_type : values_to_widen<Channels * value_chunks, widens> {
    key_tile k[stages];         ///< codes of keys, by stages
    value_tile values[stages];  ///< values, by stages
  };

  score_code const* keys;     ///< the lane's first chunk of keys
  stored_type const* values;  ///< the lane's first chunk of values
  float const* scales;        ///< the scale of the lane's first keys
  std::uint32_t key_stride;   ///< elements from key to key
  std::uint32_t value_step;   ///< values from tile to tile
  bool has_keys;              ///< whether the lane's channels of keys exist
  int value_channels;         ///< channels of values from the lane's first one on

  /// The keys and values of a head, for a lane.
  __device__ __forceinline__ static warp_operands of(unsigned lane, quantized_keys<score_code> const& keys,
                                                     quantized_value_heads<stored_type> const& values,
                                                     std::int64_t sequence, std::int64_t head) {
    auto const of_keys = keys.codes[sequence][head];
    auto const of_values = values.codes[sequence][head];
    unsigned const column = lane % key_chunks * static_cast<unsigned>(tile_chunk<score_code>::size);
    return {of_keys.data + lane / key_chunks * of_keys.stride(0) + column,
            of_values.data + lane * in_chunk,
            &keys.scales(sequence, head, Method::key_groups::group_of(lane % 4 * 2)),
            static_cast<std::uint32_t>(of_keys.stride(0)),
            static_cast<std::uint32_t>(of_values.stride(0)),
            column < of_keys.extent(1),
            static_cast<int>(of_values.extent(1)) - static_cast<int>(lane / value_chunks)};
  }
  /// The scale of the lane's keys of the tile that begins at `first`.
  __device__ __forceinline__ float scale(int first) const {
    using groups = typename Method::key_groups;
    if constexpr (groups::is_whole) {
      return *scales;
    } else {
      constexpr auto of_tokens = static_cast<unsigned>(groups::count(groups::tokens));
      return scales[static_cast<unsigned>(first) / static_cast<unsigned>(groups::tokens) * of_tokens];
    }
  }
  /// Starts to copy the keys of the tile that begins at `first`.
  __device__ __forceinline__ void begin_keys(unsigned lane, int first, key_tile& tile) const {
    score_code const* const key = keys + static_cast<std::uint64_t>(static_cast<unsigned>(first)) * key_stride;
    auto const row = static_cast<int>(lane / key_chunks);
    auto const column = static_cast<int>(lane % key_chunks) * tile_chunk<score_code>::size;
#pragma unroll
    for (int i = 0; i < tile_keys / key_rows; ++i) {
      async_copy_16_or_zero(&tile.chunk(i * key_rows + row, column),
                            key + static_cast<std::uint64_t>(i * key_rows) * key_stride, has_keys);
    }
  }
  /// Starts to copy the lane's own chunks of a tile of values: to where they are widened, or to a stage.
  __device__ __forceinline__ void begin_values(unsigned lane, int first, scratch_type& scratch, int stage) const {
    unsigned const tile = static_cast<unsigned>(first) / static_cast<unsigned>(tile_keys);
    stored_type const* const value = values + static_cast<std::uint64_t>(tile) * value_step;
#pragma unroll
    for (int i = 0; i < lane_chunks; ++i) {
      async_copy_16_or_zero(place_of(lane, i, scratch, stage), value + i * value_rows * tile_keys,
                            i * value_rows < value_channels);
    }
  }
  /// Starts to fill a step's stage of a ring with the values of the tile that begins at `first`, if it begins before
  /// `end`, as a batch. Where values are widened, they have been copied in the last batch but one: widens these, and
  /// starts to copy the next.
  __device__ __forceinline__ void fill_values(unsigned lane, int first, int end, fill_step<stages> const& step,
                                              stage_ring<stages>& ring, scratch_type& scratch) const {
    if (first < end) {
      if constexpr (widens) {
        async_copy_wait<1>();
        shared_barrier& full = step.when_empty(ring);
        widen_values(lane, scratch, step.stage);
        full.arrive();
        if (first + tile_keys < end) {
          begin_values(lane, first + tile_keys, scratch, step.stage);
        }
      } else {
        shared_barrier& full = step.when_empty(ring);
        begin_values(lane, first, scratch, step.stage);
        full.arrive_after_copies();
      }
    }
    async_copy_commit();
  }
  /// Widens the lane's own chunks, when they have come, to a stage.
  __device__ __forceinline__ static void widen_values(unsigned lane, scratch_type& scratch, int stage) {
    uint4 held[lane_chunks];
#pragma unroll
    for (int i = 0; i < lane_chunks; ++i) {
      held[i] = reinterpret_cast<uint4 const&>(scratch.v[lane + i * Lanes]);
    }
#pragma unroll
    for (int i = 0; i < lane_chunks; ++i) {
      detail::widen_to_halves::widen(held[i], reinterpret_cast<uint4*>(staged(lane, i, scratch, stage)));
    }
  }

 private:
  /// Where chunk `i` of a lane is copied to.
  __device__ __forceinline__ static void* place_of(unsigned lane, int i, scratch_type& scratch, int stage) {
    if constexpr (widens) {
      return &scratch.v[lane + i * Lanes];
    } else {
      return staged(lane, i, scratch, stage);
    }
  }
  /// Where chunk `i` of a lane lies in a stage.
  __device__ __forceinline__ static void* staged(unsigned lane, int i, scratch_type& scratch, int stage) {
    auto const row = static_cast<int>(lane / value_chunks);
    auto const column = static_cast<int>(lane % value_chunks * in_chunk);
    return &scratch.values[stage][i * value_rows / width].chunk(i * value_rows % width + row, column);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
