// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `few_queries_boxes`: how attention_of_few_queries (program/attention/quantized_decode.cuh) gets its keys and values
/// on sm_90: one thread of a warp of its own loads them by TMA into the stages of two rings, and mbarriers tell the
/// other warps when they have come. `few_queries_copies` (few_queries_copies.cuh) has the same members.
#pragma once

#include <cstdint>

#include <tessera/core/float8.hpp>
#include <tessera/program/attention/detail/quantized_decode_schedule.hpp>
#include <tessera/program/attention/detail/quantized_decode_shape.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Stages: tiles of keys, and of values, that a thread block has room for.
template <int Channels, int Stages>
struct few_queries_boxes {
  using shape = few_queries_shape<Channels>;
  /// The consumer warps and the producer warp.
  using block_warps = worker_warps<shape::warps>;
  static constexpr int lanes = block_warps::lanes;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  /// Whether a work item is found again at its end.
  static constexpr bool finds_work_again = false;
  static constexpr bool waits_for_stream = true;

  /// Where codes of all keys and values lie.
  struct source_type {
    tensor_map key_map;    ///< codes of keys: (batch, head, padded token) x channel
    tensor_map value_map;  ///< codes of values: (batch, head, tile, channel) x slot of 128 tokens
  };
  /// The codes of a call. Messages name `function`.
  [[nodiscard]] static source_type source(char const* function, matrix_view<std::int8_t const> keys,
                                          matrix_view<float8_e4m3 const> values, attention_shape const& of) {
    return {make_tensor_map(function, keys, {shape::keys, shape::row_bytes}, shape::swizzle),
            make_tensor_map(function, values, {static_cast<int>(of.channels), shape::keys})};
  }

  /// The scales of a tile of keys.
  using scales_type = float[lane_scales];
  /// What tells which stages are full.
  struct rings_type {
    stage_ring<Stages> key_ring;    ///< of tiles of keys
    stage_ring<Stages> value_ring;  ///< of tiles of values
  };

  /// Runs the thread block: attend(warp, lane) by each warp that attends, while another one loads.
  template <class Decoder, class Attend>
  __device__ __forceinline__ static void run(Decoder const& program, cuda_block<lanes> const& group,
                                             typename Decoder::scratch_type& scratch, Attend const& attend) {
    auto const own = block_warps::of(group);
    own.begin([&] { init_barriers(program.source, scratch.rings); });
    if (own.warp < shape::warps) {
      attend(own.warp, own.lane);
    } else if (own.lane == 0) {
      produce(program, scratch);
    }
  }

  /// A warp's side of the rings, whose steps overlap: a tile of keys is awaited, read and released, and so is one of
  /// values.
  struct reader {
    pipeline_state<Stages> key;
    pipeline_state<Stages> value;

    /// Nothing is to be begun before the block's first work item.
    template <class Decoder>
    __device__ __forceinline__ void start(Decoder const&, typename Decoder::scratch_type&, int, int) const {}
    /// Nothing is to be found: the producer does that.
    template <class Decoder>
    __device__ __forceinline__ void find_keys(Decoder const&) const {}
    /// Nothing is to be found.
    template <class Decoder>
    __device__ __forceinline__ void find_values(Decoder const&) const {}
    /// Tiles can be read from here on.
    __device__ __forceinline__ void begin() const { block_warps::wait_for_barriers(); }
    /// Waits for the next tile of keys.
    template <class Scratch>
    __device__ __forceinline__ void await_keys(Scratch& scratch) {
      static_cast<void>(ring_reader(scratch.rings.key_ring, key).begin_step(0));
    }
    /// The tile of keys that was awaited.
    template <class Scratch>
    __device__ __forceinline__ unsigned char const* keys(Scratch const& scratch) const {
      return scratch.key[key.stage];
    }
    /// Scales of that tile.
    template <class Scratch>
    __device__ __forceinline__ float const* key_scales(Scratch const& scratch, int, int) const {
      return scratch.key_scale[key.stage];
    }
    /// Releases the tile of keys; its scales were read by the first lane_scales lanes.
    template <class Decoder>
    __device__ __forceinline__ void release_keys(Decoder const&, typename Decoder::scratch_type& scratch, int,
                                                 int lane) {
      auto const release = [lane](shared_barrier& empty) {
        block_warps::release(empty, lane, lane_scales);  // by the lanes that have read
      };
      ring_reader(scratch.rings.key_ring, key, release).end_step(0, 1);
    }
    /// Says whether no tile of keys is read between two of values.
    __device__ __forceinline__ void pass_keys(bool) const {}
    /// The next tile of values. It may not have come.
    template <class Scratch>
    __device__ __forceinline__ unsigned char const* values(Scratch const& scratch) const {
      return scratch.value[value.stage];
    }
    /// Waits for that tile.
    template <class Scratch>
    __device__ __forceinline__ void await_values(Scratch& scratch) {
      static_cast<void>(ring_reader(scratch.rings.value_ring, value).begin_step(0));
    }
    /// Releases the tile of values.
    template <class Decoder>
    __device__ __forceinline__ void release_values(Decoder const&, typename Decoder::scratch_type& scratch, int,
                                                   int lane) {
      auto const release = [lane](shared_barrier& empty) { block_warps::release(empty, lane); };
      ring_reader(scratch.rings.value_ring, value, release).end_step(0, 1);
    }
    /// Says whether no tile of values is read between two of keys.
    __device__ __forceinline__ void pass_values(bool) const {}
  };

 private:
  using pipeline_type = pipeline_state<Stages>;

  __device__ __forceinline__ static void init_barriers(source_type const& source, rings_type& rings) {
    prefetch_tensor_map(source.key_map);
    prefetch_tensor_map(source.value_map);
    rings.key_ring.init(1, lane_scales * shape::warps);
    rings.value_ring.init(1, shape::warps);
    fence_barrier_init();
  }

  /// Loads keys and values of all work items, by one thread.
  template <class Decoder>
  __device__ __forceinline__ static void produce(Decoder const& program, typename Decoder::scratch_type& scratch) {
    auto const& s = program.results.shape;
    auto const count = program.schedule.count();
    pipeline_type pipeline;
    for (std::uint32_t work = block_index(); work < count; work += blocks_in_grid()) {
      few_query_work_item const at = program.schedule.at(work);
      std::int64_t const head = at.sequence * s.key_heads + at.key_head;
      std::int64_t const tiles_of_head = padded_tokens(s.keys) / shape::keys;
      for (fill_step<Stages> const step : pipelined(ring_filler(pipeline), at.tiles)) {
        std::int64_t const tile = head * tiles_of_head + at.first_tile + step.index;
        load_keys(program, scratch, step, tile);
        load_values(program, scratch, step, tile);
      }
    }
  }
  template <class Decoder>
  __device__ __forceinline__ static void load_keys(Decoder const& program, typename Decoder::scratch_type& scratch,
                                                   fill_step<Stages> const& at, std::int64_t tile) {
    shared_barrier& full = at.when_empty(scratch.rings.key_ring);
    constexpr int scale_bytes = sizeof(scratch.key_scale[0]);
    full.arrive_and_expect(shape::tile_bytes + scale_bytes);
    load_bytes(scratch.key_scale[at.stage], program.key_scales + lane_scales * tile, scale_bytes, full);
#pragma unroll
    for (int panel = 0; panel < shape::panels; ++panel) {
      load_box(scratch.key[at.stage] + panel * shape::keys * shape::row_bytes, program.source.key_map, full,
               {panel * shape::row_bytes, static_cast<std::int32_t>(tile * shape::keys)});
    }
  }
  template <class Decoder>
  __device__ __forceinline__ static void load_values(Decoder const& program, typename Decoder::scratch_type& scratch,
                                                     fill_step<Stages> const& at, std::int64_t tile) {
    shared_barrier& full = at.when_empty(scratch.rings.value_ring);
    auto const channels = static_cast<std::int32_t>(program.results.shape.channels);
    full.arrive_and_expect(channels * shape::keys);
    load_box(scratch.value[at.stage], program.source.value_map, full, {0, static_cast<std::int32_t>(tile) * channels});
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
