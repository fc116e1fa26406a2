// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention over operands that are not quantized, on CUDA devices: which program a call gets.
///
/// dense_attention.hpp includes this header where nvcc compiles: call attention as on the CPU, with a tessera::cuda
/// executor. On sm_90a a kernel with wgmma and TMA (program/attention/detail/dense_forward.cuh) runs calls with results
/// in bfloat16 or float16, where TMA can load the heads: channels lie next to each other, and tokens, heads and
/// sequences begin at multiples of 16 bytes. On other GPUs, and where that kernel refuses a call, one with mma.sync and
/// cp.async (detail/dense_by_warps.cuh) runs it, also with results in fp32, a bias or lists of tiles, if channels lie
/// next to each other and rows begin at multiples of 16 bytes. Causal masks, windows, lengths, packed sequences, shared
/// key heads, log-sum-exps and sinks run in both. There are programs of 64, 128 and 256 channels; a call takes the next
/// one that is large enough.
///
/// The device reads the lengths of sequences. Several multiprocessors share the keys of all blocks of queries if there
/// are few, on sm_90a also those of the last blocks, so that all multiprocessors have work until the end.
#pragma once

#include <cstdint>
#include <iterator>
#include <type_traits>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/algorithm/attention/detail/dense_by_warps_model.cuh>
#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/dense_forward.cuh>
#include <tessera/program/attention/detail/merge_forward_splits.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/sm_90/token_boxes.cuh>
#include <tessera/tuning/attention/dense.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The policy of the program for `Channels` channels or fewer.
template <int Channels>
inline constexpr dense_attention_policy dense_policy = policy_of<dense_attention_tuning<Channels>>(900);

/// dense_warpgroup_attention for `Channels` channels or fewer.
template <int Channels, class T, class Result>
using dense_program = dense_warpgroup_attention<Channels, T, Result, dense_policy<Channels>>;

/// Whether there are keys, and all numbers of rows fit into 32 bits.
inline bool has_room_for_dense(attention_shape const& s) {
  constexpr std::int64_t most = std::int64_t{1} << 29;
  return s.keys > 0 && s.queries < most && s.keys < most && s.batch < most && s.query_heads < most &&
         s.batch * s.query_heads < most && s.batch * s.query_heads * divide_up(s.queries, std::int64_t{64}) < most;
}

/// The cost of each block of queries, in the units of dense_split_tuning.
struct dense_work_cost {
  attention_schedule schedule;
  key_band band;
  std::int32_t queries;
  std::int32_t keys;
  std::int32_t rows;       ///< queries of a block
  std::int32_t tile_keys;  ///< keys of a tile

  [[nodiscard]] std::int64_t operator()(std::int32_t index) const {
    constexpr attention_split_policy policy = policy_of<dense_split_tuning>(900);
    constexpr int most = static_cast<int>(std::size(policy.tile)) - 1;
    return std::int64_t{tiles_of(schedule.at(index).block)} * policy.tile[min(rows / 64 - 1, most)];
  }
  /// Whether the first and the last block of a head see as many tiles.
  [[nodiscard]] bool is_even() const { return tiles_of(0) == tiles_of(schedule.blocks - 1); }
  [[nodiscard]] attention_splits split_over(int multiprocessors, std::int64_t most_ranges) const {
    std::int64_t const most = min(most_ranges, std::int64_t{1} << 20);
    return attention_splits::of({schedule.count(), multiprocessors, static_cast<std::int32_t>(most), is_even()}, *this,
                                policy_of<dense_split_tuning>(900));
  }

 private:
  [[nodiscard]] std::int32_t tiles_of(std::int32_t block) const {
    return band.tiles({block * rows, min((block + 1) * rows, queries)}, keys, tile_keys).count();
  }
};

/// The cost of blocks of queries of a shape that has_room_for_dense().
inline dense_work_cost dense_cost_of(attention_shape const& s, key_band const& band,
                                     dense_attention_policy const& policy, bool longest_first) {
  constexpr std::int64_t cached_bytes = std::int64_t{32} << 20;  // keys and values that L2 keeps
  std::int64_t const rows = 64 * policy.consumers;
  std::int64_t const heads = s.batch * s.query_heads;
  std::int64_t const head_bytes = max(4 * s.keys * s.channels * s.key_heads / s.query_heads, std::int64_t{1});
  std::int64_t const at_a_time = clamp(cached_bytes / head_bytes, std::int64_t{1}, max(heads, std::int64_t{1}));
  attention_schedule const schedule{static_cast<std::int32_t>(heads),
                                    static_cast<std::int32_t>(divide_up(s.queries, rows)),
                                    static_cast<std::int32_t>(at_a_time), longest_first};
  return {schedule,
          band,
          static_cast<std::int32_t>(s.queries),
          static_cast<std::int32_t>(s.keys),
          static_cast<std::int32_t>(rows),
          policy.keys};
}

/// The most floats that splits of a shape take in the program of a policy, for any mask.
inline std::int64_t floats_of_dense_splits(attention_shape const& s, dense_attention_policy const& tiles,
                                           int multiprocessors) {
  using slots = typename attention_split_output::slots_type;
  constexpr attention_split_policy policy = policy_of<dense_split_tuning>(900);
  dense_work_cost const work = dense_cost_of(s, key_band{}, tiles, false);
  if (work(0) <= policy.least + policy.split + policy.merging) {
    return 0;
  }
  std::int64_t const most = std::int64_t{multiprocessors} * policy.ranges;
  std::int64_t const work_items = work.schedule.count();
  std::int64_t const ranges = work_items > attention_splits::most_work_items
                                  ? work.split_over(multiprocessors, most).ranges
                                  : min(most, work_items * work(0) / policy.least);
  return 2 * ranges * slots::floats_of_slot(work.rows, dense_channels(s.channels));
}

/// How many ranges of splits there is memory for. 0 where lengths, which the host does not know, could give a work item
/// more tiles than a split can count.
template <class T, class Result, class Bias>
std::int64_t dense_ranges(dense_attention_call<T, Result, Bias> const& call, int rows, int tile_keys) {
  using slots = typename attention_split_output::slots_type;
  bool const has_lengths = call.query_lengths.data != nullptr || call.key_lengths.data != nullptr;
  bool const is_long = call.shape.keys / tile_keys >= attention_split::most_cost;
  return has_lengths && is_long
             ? 0
             : call.work_splits.size() / (2 * slots::floats_of_slot(rows, dense_channels(call.shape.channels)));
}

/// Why dense_warpgroup_attention does not take a call whose types it takes, or none.
template <class T, class Result>
refusal refuses_dense(dense_attention_call<T, Result> const& call) {
  std::int64_t const queries = call.query_starts.first.data != nullptr ? call.query_starts.total : 0;
  std::int64_t const keys = call.key_starts.first.data != nullptr ? call.key_starts.total : 0;
  return first_of(
      unless(call.shape.keys > 0, "there are no keys"),
      unless(call.block_list.counts.data == nullptr, "there is a list of tiles"),
      unless(has_room_for_dense(call.shape), "rows of queries or keys do not fit into 31 bits"),
      unless(call.counters.data != nullptr, "there is no memory for counters of work items"),
      unless(call.out.result.stride(3) == 1, "the stride of results along head_dim", call.out.result.stride(3), "1"),
      unless(can_map_tokens(call.queries, queries), "TMA cannot load queries of these strides"),
      unless(can_map_tokens(call.keys, keys), "TMA cannot load keys of these strides"),
      unless(can_map_tokens(call.values, keys), "TMA cannot load values of these strides"));
}

/// Enqueues dense_warpgroup_attention, which takes the call.
template <class Kernel, class Architectures, class T, class Result>
void run_dense(basic_cuda<Architectures> const& exec, dense_attention_call<T, Result> const& call,
               dense_attention_policy const& policy) {
  using shape = typename Kernel::shape;
  using slots = typename attention_split_output::slots_type;
  constexpr char const* where = "dense_attention.forward";
  attention_shape const& s = call.shape;
  int const multiprocessors = exec.state->multiprocessors();
  key_band const band = key_band::of({s.queries, s.keys, call.options.window_left, call.options.keys_behind()});
  dense_work_cost const work = dense_cost_of(s, band, policy, call.options.keys_behind() >= 0);
  auto const packed = [](sequence_starts const& starts) {
    return starts.first.data != nullptr ? starts.total : std::int64_t{0};
  };
  Kernel program{};
  auto& pipeline = program.pipeline;
  pipeline.query_map =
      make_token_map(where, call.queries, packed(call.query_starts), {shape::rows, shape::panel_channels});
  pipeline.key_map = make_token_map(where, call.keys, packed(call.key_starts), {shape::keys, shape::panel_channels});
  pipeline.value_map =
      make_token_map(where, call.values, packed(call.key_starts), {shape::keys, shape::panel_channels});
  pipeline.queries = work.queries;
  pipeline.keys = work.keys;
  pipeline.channels = static_cast<std::int32_t>(s.channels);
  pipeline.query_heads = static_cast<std::int32_t>(s.query_heads);
  pipeline.heads_together = static_cast<std::int32_t>(s.query_heads / s.key_heads);
  pipeline.band = band;
  pipeline.query_lengths = call.query_lengths;
  pipeline.key_lengths = call.key_lengths;
  pipeline.query_starts = call.query_starts;
  pipeline.key_starts = call.key_starts;
  pipeline.schedule = work.schedule;
  pipeline.taken = reinterpret_cast<std::int32_t*>(call.counters.data);
  pipeline.splits = work.split_over(multiprocessors, dense_ranges(call, shape::rows, shape::keys));
  program.slope = call.softmax_scale * 1.4426950408889634F;
  program.output.to = {
      call.out.result,  has_whole_vectors(call.out.result), nullptr, nullptr, call.out.log_sum_exp, nullptr, call.sinks,
      call.query_starts};
  program.split_output.slots = slots::in(call.work_splits, 2 * pipeline.splits.ranges, shape::rows, shape::channels);
  exec.clear(call.counters);
  exec.run(program, min(pipeline.splits.turns(), multiprocessors));
  if (pipeline.splits.ranges > 0) {
    using merge_type = merge_attention_splits<decode_method, Result>;
    merge_type const merge{pipeline.splits, pipeline.schedule, program.split_output.slots, writer_of(call),
                           merge_type::parts_of(pipeline.splits)};
    exec.run(merge, merge.groups());
  }
}

}  // namespace detail

/// dense_warpgroup_attention: sm_90a.
struct dense_forward_model {
  static constexpr char const* name = "dense_forward (TMA, wgmma)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                    unless(is_16_bit_float<typename Call::result_type>, "results do not have 16 bits"),
                    unless(std::is_same_v<decltype(Call::bias), no_bias>, "there is a bias"));
  }
  template <class Architectures, class T, class Result>
  static refusal refuses(basic_cuda<Architectures> const& exec, dense_attention_call<T, Result> const& call) {
    refusal const why = detail::refuses_dense(call);
    return why ? why : with_constant<64, 128, 256>(detail::dense_channels(call.shape.channels), [&](auto channels) {
      return exec.template lacks<detail::dense_program<channels.value, T, Result>>();
    });
  }
  template <class Architectures, class T, class Result>
  static void run(basic_cuda<Architectures> const& exec, dense_attention_call<T, Result> const& call) {
    with_constant<64, 128, 256>(detail::dense_channels(call.shape.channels), [&](auto channels) {
      using program_type = detail::dense_program<channels.value, T, Result>;
      detail::run_dense<program_type>(exec, call, detail::dense_policy<channels.value>);
    });
  }
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class Result, class Bias>
struct models_for<basic_cuda<Architectures>, dense_attention_call<T, Result, Bias>> {
  /// The list of models.
  using type = model_list<dense_forward_model, detail::dense_by_warps_model, detail::dense_tiles_model>;
};

/// How the programs of a device share work items.
template <class Architectures>
dense_splits dense_splits_of(basic_cuda<Architectures> const& exec, attention_shape const& shape) {
  if (shape.batch * shape.queries == 0) {
    return {};
  }
  int const multiprocessors = exec.state->multiprocessors();
  if (!exec.template has<detail::specific_program>()) {
    using splits = detail::dense_warps_splits;
    std::int64_t const count = splits::count(shape, multiprocessors, most_attention_splits);
    return {splits::floats(shape, count), count};
  }
  if (!detail::has_room_for_dense(shape)) {
    return {};
  }
  return {with_constant<64, 128, 256>(detail::dense_channels(shape.channels), [&](auto channels) {
    return detail::floats_of_dense_splits(shape, detail::dense_policy<channels.value>, multiprocessors);
  })};
}

}  // namespace v0
}  // namespace tessera
