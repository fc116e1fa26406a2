// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `few_queries_copies`: how attention_of_few_queries (program/attention/quantized_decode.cuh) gets its keys and values
/// without TMA (sm_80 and later). Of each tile a warp reads an eighth of the keys, and all keys of an eighth of the
/// channels of values. It copies these itself by cp.async, 2 KiB of neighbours each at 128 channels, into its own part
/// of two rings: no warp waits for another one's copies, and there is no mbarrier. `few_queries_boxes`
/// (few_queries_boxes.cuh) has the same members, and tiles lie in the same way.
///
/// When a warp has read a run of tiles, it begins to copy the one `Stages` further into its place, from work item to
/// work item without a pause. Each release or pass of keys, and each of values, ends one batch of a lane's copies,
/// which may be empty, and they alternate. So 2 * Stages - 1 batches or more come after the batch of a run, until it is
/// awaited. One stage is enough: keys are on their way while weights are made and values are multiplied, and values
/// while scores are made.
#pragma once

#include <cstdint>

#include <tessera/core/float8.hpp>
#include <tessera/program/attention/detail/quantized_decode_schedule.hpp>
#include <tessera/program/attention/detail/quantized_decode_shape.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_80/refilled_ring.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Stages: runs of keys, and of values, that a thread block has room for. Tiles: the most tiles of a run. Rows of codes
/// have whole 16 bytes.
template <int Channels, int Stages, int Tiles>
struct few_queries_copies {
  using shape = few_queries_shape<Channels>;
  /// The warps that attend, which are all.
  using block_warps = worker_warps<shape::warps>;
  static constexpr int lanes = block_warps::worker_lanes;
  static constexpr int from_architecture = 800;
  static constexpr int before_architecture = 10000;
  /// Whether a work item is found again at its end, so that it takes no registers until then.
  static constexpr bool finds_work_again = true;
  static constexpr bool waits_for_stream = false;

  /// Where codes of all keys and values lie.
  struct source_type {
    std::int8_t const* keys;    ///< codes of keys: (batch, head, padded token) x channel
    float8_e4m3 const* values;  ///< codes of values: (batch, head, tile, channel) x slot of 128 tokens
  };
  /// The codes of a call.
  [[nodiscard]] static source_type source(char const*, matrix_view<std::int8_t const> keys,
                                          matrix_view<float8_e4m3 const> values, attention_shape const&) {
    return {keys.data, values.data};
  }

  /// The scales of a run of keys, for each warp.
  using scales_type = float[Tiles][shape::warps][lane_scales];
  /// Nothing tells warps which stages are full.
  struct rings_type {};

  /// Runs the thread block: attend(warp, lane) by each warp.
  template <class Decoder, class Attend>
  __device__ __forceinline__ static void run(Decoder const&, cuda_block<lanes> const& group,
                                             typename Decoder::scratch_type&, Attend const& attend) {
    auto const lane = static_cast<unsigned>(group.lane);  // without a sign, which divisions would count with
    attend(uniform(static_cast<int>(lane / 32U)), static_cast<int>(lane % 32U));
  }

 private:
  /// A place in the block's sequence of tiles, of all its work items.
  struct cursor {
    std::uint32_t work;  ///< the next work item
    std::int32_t left;   ///< tiles that are left of the one before
    std::int32_t tile;   ///< number of the first of them, in all heads

    /// Goes on to a work item that has tiles, if there is one.
    template <class Decoder>
    __device__ __forceinline__ void find(Decoder const& program) {
      while (left == 0 && work < program.schedule.count()) {
        few_query_work_item const at = program.schedule.at(work);
        auto const& s = program.results.shape;
        auto const head = static_cast<std::int32_t>(at.sequence * s.key_heads + at.key_head);
        auto const tiles_of_head = static_cast<std::int32_t>(padded_tokens(s.keys) / shape::keys);
        tile = head * tiles_of_head + static_cast<std::int32_t>(at.first_tile);
        left = at.tiles;
        work += blocks_in_grid();
      }
    }
    /// How many tiles the next run has.
    [[nodiscard]] __device__ __forceinline__ std::int32_t run() const { return min(left, Tiles); }
    /// Goes on to the next run.
    __device__ __forceinline__ void advance() {
      std::int32_t const count = run();
      tile += count;
      left -= count;
    }
  };

 public:
  /// A warp's part of the rings. A run of keys is awaited, read and released, and so is one of values.
  struct reader {
    cursor next_key;    ///< the run of keys that is copied next
    cursor next_value;  ///< the run of values that is copied next
    int key;            ///< stage of the run of keys that is read next
    int value;          ///< stage of the run of values that is read next

    /// Begins to copy the block's first tiles, before its first work item begins.
    template <class Decoder>
    __device__ __forceinline__ void start(Decoder const& program, typename Decoder::scratch_type& scratch, int warp,
                                          int lane) {
      next_key = {block_index(), 0, 0};
      key = 0;
      value = 0;
      for (int stage = 0; stage < Stages; ++stage) {
        next_key.find(program);
        next_value = next_key;
        use_ring(
            key, [&](int into) { copy_keys(program, scratch, into, warp, lane); },
            [&](auto const& ring) { ring.fill(stage); });
        use_ring(
            value, [&](int into) { copy_values(program, scratch, into, warp, lane); },
            [&](auto const& ring) { ring.fill(stage); });
      }
    }
    /// Finds the keys that are copied when the next ones are released.
    template <class Decoder>
    __device__ __forceinline__ void find_keys(Decoder const& program) {
      next_key.find(program);
    }
    /// Finds the values that are copied when the next ones are released.
    template <class Decoder>
    __device__ __forceinline__ void find_values(Decoder const& program) {
      next_value.find(program);
    }
    /// Nothing is to be waited for before tiles are read.
    __device__ __forceinline__ void begin() const {}
    /// Waits for the next run of keys.
    template <class Scratch>
    __device__ __forceinline__ void await_keys(Scratch&) {
      await(key);
    }
    /// The run of keys that was awaited.
    template <class Scratch>
    __device__ __forceinline__ unsigned char const* keys(Scratch const& scratch) const {
      return scratch.key[key];
    }
    /// Scales of one of its tiles.
    template <class Scratch>
    __device__ __forceinline__ float const* key_scales(Scratch const& scratch, int tile, int warp) const {
      return scratch.key_scale[key][tile][warp];
    }
    /// Releases the run of keys, and begins to copy another one.
    template <class Decoder>
    __device__ __forceinline__ void release_keys(Decoder const& program, typename Decoder::scratch_type& scratch,
                                                 int warp, int lane) {
      use_ring(
          key, [&](int into) { copy_keys(program, scratch, into, warp, lane); },
          [](auto const& ring) { ring.end_step(); });
    }
    /// Says whether no run of keys is read between two of values.
    __device__ __forceinline__ void pass_keys(bool is_passed) const {
      if (is_passed) {
        async_copy_commit();
      }
    }
    /// The next run of values. It may not have come.
    template <class Scratch>
    __device__ __forceinline__ unsigned char const* values(Scratch const& scratch) const {
      return scratch.value[value];
    }
    /// Waits for that run.
    template <class Scratch>
    __device__ __forceinline__ void await_values(Scratch&) {
      await(value);
    }
    /// Releases the run of values, and begins to copy another one.
    template <class Decoder>
    __device__ __forceinline__ void release_values(Decoder const& program, typename Decoder::scratch_type& scratch,
                                                   int warp, int lane) {
      use_ring(
          value, [&](int into) { copy_values(program, scratch, into, warp, lane); },
          [](auto const& ring) { ring.end_step(); });
    }
    /// Says whether no run of values is read between two of keys.
    __device__ __forceinline__ void pass_values(bool is_passed) const {
      if (is_passed) {
        async_copy_commit();
      }
    }

   private:
    /// Calls use(ring) with the ring whose next stage is `stage`; the steps of keys and of values take turns.
    template <class Fill, class Use>
    __device__ __forceinline__ static void use_ring(int& stage, Fill const& fill, Use const& use) {
      cuda_warp const own;
      use(ring_refiller<Stages, cuda_warp, Fill, 2>(own, stage, fill));
    }
    __device__ __forceinline__ static void await(int& stage) {
      use_ring(
          stage, [](int) {}, [](auto const& ring) { static_cast<void>(ring.begin_step(0)); });
    }

    /// Begins to copy the warp's keys of the next run of tiles, and their scales.
    template <class Decoder>
    __device__ __forceinline__ void copy_keys(Decoder const& program, typename Decoder::scratch_type& scratch,
                                              int stage, int warp, int lane) {
      if (next_key.left > 0) {
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
          if (i < next_key.run()) {
            std::int64_t const tile = next_key.tile + i;
            copy_keys_of(program, scratch.key[stage] + i * shape::tile_bytes, tile, warp, lane);
            if (lane == 0) {
              async_copy_16(scratch.key_scale[stage][i][warp], program.key_scales + lane_scales * tile);
            }
          }
        }
        next_key.advance();
      }
    }
    /// Begins to copy the warp's channels of the next run of tiles of values.
    template <class Decoder>
    __device__ __forceinline__ void copy_values(Decoder const& program, typename Decoder::scratch_type& scratch,
                                                int stage, int warp, int lane) {
      if (next_value.left > 0) {
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
          if (i < next_value.run()) {
            copy_values_of(program, scratch.value[stage] + i * shape::tile_bytes, next_value.tile + i, warp, lane);
          }
        }
        next_value.advance();
      }
    }
    /// Begins to copy the warp's keys of a tile, a few whole rows at a time.
    template <class Decoder>
    __device__ __forceinline__ static void copy_keys_of(Decoder const& program, unsigned char* tile_to,
                                                        std::int64_t tile, int warp, int lane) {
      constexpr int row_chunks = Channels / 16;
      constexpr int rows = 32 / row_chunks;  // that lanes copy at a time
      constexpr int panel_chunks = shape::row_bytes / 16;
      auto const channels = static_cast<int>(program.results.shape.channels);
      int const chunk = lane % row_chunks;
      int const row = lane / row_chunks;
      std::int8_t const* const from = program.source.keys + tile * (shape::keys * channels) +
                                      ((shape::warp_keys * warp + row) * channels + 16 * chunk);
      unsigned char* const to =
          tile_to + (chunk / panel_chunks * shape::keys + shape::warp_keys * warp) * shape::row_bytes;
#pragma unroll
      for (int i = 0; i < shape::warp_keys; i += rows) {
        int const swizzled = shape::row_bytes == 128 ? row ^ (i % 8) : (row ^ (i % 8)) / 2;
        async_copy_16_or_zero(to + (row + i) * shape::row_bytes + ((chunk % panel_chunks) ^ swizzled) * 16,
                              from + i * channels, 16 * chunk < channels);
      }
    }
    /// Begins to copy the warp's channels of a tile of values, four at a time.
    template <class Decoder>
    __device__ __forceinline__ static void copy_values_of(Decoder const& program, unsigned char* tile_to,
                                                          std::int64_t tile, int warp, int lane) {
      auto const channels = static_cast<int>(program.results.shape.channels);
      int const row = lane / 8;
      int const first = shape::warp_channels * warp + row;
      float8_e4m3 const* const from =
          program.source.values + tile * (shape::keys * channels) + (first * shape::keys + lane % 8 * 16);
      unsigned char* const to = tile_to + first * shape::keys;
#pragma unroll
      for (int i = 0; i < shape::warp_channels; i += 4) {
        async_copy_16_or_zero(to + i * shape::keys + ((lane % 8) ^ row ^ (i % 8)) * 16, from + i * shape::keys,
                              first + i < channels);
      }
    }
  };
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
