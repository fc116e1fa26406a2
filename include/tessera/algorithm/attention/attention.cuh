// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Quantized attention on CUDA devices: which program a call gets.
///
/// attention.hpp includes this header where nvcc compiles: call attention as on the CPU, with a tessera::cuda executor.
/// No call waits or allocates. Quantization: quantized_attention.cuh.
///
/// On sm_90a a kernel with wgmma and TMA (program/attention/quantized_forward.cuh) runs attention over codes of 8 or 4
/// bits or in e4m3 with per_thread scales, a code in a byte, and values in e4m3, with results in bfloat16 or float16,
/// for softmaxes that have lane_weights (program/attention/lane_weights.cuh). It adds scores of mean queries, and a
/// bias: a linear_bias, a dense_bias of 16 bits in tiles by TMA, or any function, called for each score. Scores with
/// these are rounded elsewhere than in the portable programs, so that a weight's code may be the next one. Lists of
/// tiles run in it if they are part of the type (map/listed_tiles.hpp); a list that only the inputs have runs in the
/// portable programs. There are programs of 64, 128 and 256 channels; a call takes the next one that is large enough,
/// so that 80 channels take as long as 128. Queries and keys of 192 channels with values of 128 have a program,
/// too; with a bias, smoothed queries or lists, and with other widths that differ, the larger one counts for both.
/// The device reads the lengths of sequences, once for each block of queries; blocks behind the last query only write
/// zeros. Several multiprocessors share the keys of the last blocks of queries, or of all blocks if there are few, so
/// that all multiprocessors have work until the end. Log-sum-exps are computed from the decoded codes of weights, by
/// whose sum results are divided, so that results can be merged by them. With piecewise_linear_softmax this is so in
/// all programs. With online_softmax the log-sum-exps, and the factor by which a sink reduces results, are within 0.061
/// (log(17 / 16)) of those of the portable program, and usually within 0.03 / sqrt(keys that matter).
///
/// Sequences of up to 16 queries over codes of 8 or 4 bits, without a bias or lists of tiles, take one read of keys and
/// values for all query heads that share them (program/attention/quantized_decode.cuh), if values have as many channels
/// as keys: on sm_90 by TMA, and, with codes in a byte, on GPUs without wgmma by cp.async. There sequences of 64
/// queries and more, of up to 128 channels, without lists, run in forward_by_warps, if it has the types, also over
/// pairs of codes; on sm_89 and sm_120 with products of weights and values in e4m3, else in fp16. Everything else runs
/// in the portable programs with mma.sync.
#pragma once

#include <cstdint>
#include <iterator>
#include <type_traits>

#include <tessera/algorithm/attention/attention.hpp>
#include <tessera/algorithm/attention/detail/attention_tiles_model.cuh>
#include <tessera/algorithm/attention/detail/bias_rows.cuh>
#include <tessera/algorithm/attention/detail/forward_by_warps_model.cuh>
#include <tessera/algorithm/attention/detail/program_channels.cuh>
#include <tessera/algorithm/attention/detail/quantized_decode_by_warps_model.cuh>
#include <tessera/algorithm/attention/detail/widened_attention.cuh>
#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/program/attention/quantized_decode.cuh>
#include <tessera/program/attention/quantized_forward.cuh>
#include <tessera/program/attention/split_keys.cuh>
#include <tessera/quantize/granularity.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether there are keys, and all row numbers fit into 32 bits.
inline bool has_room_for_warpgroups(attention_shape const& s) {
  constexpr std::int64_t most = std::int64_t{1} << 29;
  std::int64_t const query_rows = s.batch * s.query_heads * padded_tokens(s.queries);
  std::int64_t const key_rows = s.batch * s.key_heads * padded_tokens(s.keys);
  return s.keys > 0 && s.queries < most && s.keys < most && query_rows < most_rows && key_rows < most_rows &&
         key_rows / attention_padding * s.channels_of_values() < most_rows;
}

/// The cost of each block of queries, in the units of attention_split_policy: less where the block has fewer rows
/// than its warpgroups could take.
struct attention_work_cost {
  attention_schedule schedule;
  key_band band;
  std::int32_t queries;
  std::int32_t keys;
  std::int32_t rows;  ///< queries of a block

  [[nodiscard]] std::int64_t operator()(std::int32_t index) const {
    constexpr attention_split_policy policy = policy_of<attention_split_tuning>(900);
    constexpr int most = static_cast<int>(std::size(policy.tile)) - 1;
    std::int32_t const first = schedule.at(index).block * rows;
    std::int32_t const end = min(first + rows, queries);
    return std::int64_t{band.tiles({first, end}, keys).count()} * policy.tile[min((end - first - 1) / 64, most)];
  }
  /// Whether the first and the last block of a head see as many tiles.
  [[nodiscard]] bool is_even() const {
    std::int32_t const last = (schedule.blocks - 1) * rows;
    return band.tiles({0, min(rows, queries)}, keys).count() == band.tiles({last, queries}, keys).count();
  }
  [[nodiscard]] attention_splits split_over(int multiprocessors, std::int64_t most_ranges) const {
    std::int64_t const most = min(most_ranges, std::int64_t{1} << 20);
    return attention_splits::of({schedule.count(), multiprocessors, static_cast<std::int32_t>(most), is_even()}, *this,
                                policy_of<attention_split_tuning>(900));
  }
};

/// The cost of blocks of queries where all keys are seen. The shape must be one that has_room_for_warpgroups().
inline attention_work_cost cost_without_mask(attention_shape const& s) {
  auto const queries = static_cast<std::int32_t>(s.queries);
  auto const heads = static_cast<std::int32_t>(s.batch * s.query_heads);
  std::int32_t const rows = block_rows_of(s);
  attention_schedule const schedule{heads, divide_up(queries, rows), 1, false};
  return {schedule, key_band{}, queries, static_cast<std::int32_t>(s.keys), rows};
}

/// Whether splitting the keys of few work items saves time. False for shapes that have no queries or not
/// has_room_for_warpgroups().
inline bool has_long_work_items(attention_shape const& s) {
  constexpr attention_split_policy policy = policy_of<attention_split_tuning>(900);
  return s.batch * s.queries > 0 && has_room_for_warpgroups(s) &&
         cost_without_mask(s)(0) > policy.least + policy.split + policy.merging;
}

/// How many floats of memory the largest number of splits takes, for any mask. `least`: calls of so many queries and
/// fewer are for another program.
inline std::int64_t floats_of_work_splits(attention_shape const& s, int multiprocessors, std::int64_t least) {
  using slots = typename attention_split_output::slots_type;
  constexpr attention_split_policy policy = policy_of<attention_split_tuning>(900);
  if (s.queries <= least || !has_long_work_items(s)) {
    return 0;
  }
  attention_work_cost const work = cost_without_mask(s);
  std::int64_t const most = std::int64_t{multiprocessors} * policy.ranges;
  std::int64_t const work_items = work.schedule.count();
  std::int64_t const ranges = work_items > attention_splits::most_work_items
                                  ? work.split_over(multiprocessors, most).ranges
                                  : min(most, work_items * work(0) / policy.least);
  return 2 * ranges * slots::floats_of_slot(block_rows_of(s), program_value_channels(program_channels(s)));
}

/// Why no program for sm_90 takes a call of these types, or none.
template <Executor Exec, class Call>
constexpr refusal refuses_types_of_attention() {
  using method = typename Call::method;
  return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                  refuses_codes<method>(),
                  unless(is_16_bit_float<typename Call::value_type>, "results do not have 16 bits"),
                  unless(has_lane_weights<typename method::softmax>, "lanes do not make weights of the softmax"));
}

/// Why warpgroup_attention does not take a call whose types it takes, but for its codes, or none.
template <class Method, class T, class Bias>
refusal refuses_warpgroups(attention_call<Method, T, Bias> const& call, int multiprocessors) {
  if (refusal const why = refuses_extras(call)) {
    return why;
  }
  if constexpr (has_bias_tiles<bias_without_list<Bias>>) {
    if (refusal const why = refuses_biases(without_list(call.bias).biases)) {
      return why;
    }
  }
  attention_shape const& s = call.shape;
  std::int64_t const blocks = s.batch * s.query_heads * divide_up(s.queries, std::int64_t{block_rows_of(s)});
  bool const is_split = call.partials.rows.data != nullptr && call.work_splits.data == nullptr &&
                        2 * blocks < multiprocessors && has_room_for_warpgroups(s) && has_long_work_items(s);
  return first_of(
      unless(has_room_for_warpgroups(s), "rows of queries or keys do not fit into 31 bits"),
      unless(is_aligned(call.heads.queries.corrections.data) && is_aligned(call.heads.queries.correction_ranges.data),
             "scores of mean queries or their ranges do not begin at multiples of 16 bytes"),
      unless(!is_split, "few blocks of queries have no memory for splits of their work items"),
      unless(call.counters.data != nullptr, "there is no memory for counters of work items"),
      unless(call.out.result.stride(3) == 1, "the stride of results along head_dim", call.out.result.stride(3), "1"));
}

/// The schedule of a call's blocks: as many heads at a time as have their keys and values in L2.
template <class Method, class T, class Bias>
attention_schedule schedule_of(attention_call<Method, T, Bias> const& call, int rows) {
  constexpr std::int64_t cached_bytes = std::int64_t{32} << 20;  // codes that L2 keeps
  attention_shape const& s = call.shape;
  std::int64_t const head_bytes =
      max(padded_tokens(s.keys) * (s.channels + s.channels_of_values()) * s.key_heads / s.query_heads, 1);
  std::int64_t const heads = s.batch * s.query_heads;
  std::int64_t const at_a_time = clamp(cached_bytes / head_bytes, std::int64_t{1}, max(heads, std::int64_t{1}));
  return {static_cast<std::int32_t>(heads), static_cast<std::int32_t>(divide_up(s.queries, std::int64_t{rows})),
          static_cast<std::int32_t>(at_a_time), call.options.keys_behind() >= 0};
}

/// Sets the operands, extents and schedule of a program, without splits.
template <class Pipeline, class Method, class T, class Bias>
void set_operands(Pipeline& pipeline, attention_call<Method, T, Bias> const& call) {
  using shape = typename Pipeline::shape;
  constexpr char const* where = "attention.forward";
  attention_shape const& s = call.shape;
  auto const& heads = call.heads;
  pipeline.query_map =
      make_tensor_map(where, rows_of_heads(heads.queries.codes), {shape::rows, shape::row_bytes}, shape::swizzle);
  pipeline.key_map = make_tensor_map(where, rows_of_heads(heads.keys.codes),
                                     {static_cast<int>(attention_padding), shape::row_bytes}, shape::swizzle);
  pipeline.value_map = make_tensor_map(where, rows_of_heads(heads.values.codes),
                                       {static_cast<int>(s.channels_of_values()), static_cast<int>(attention_padding)});
  pipeline.query_scales = heads.queries.scales.data;
  pipeline.key_scales = heads.keys.scales.data;
  pipeline.terms.corrections = heads.queries.corrections.data;
  pipeline.terms.correction_ranges = heads.queries.correction_ranges.data;
  if constexpr (has_bias_tiles<bias_without_list<Bias>>) {
    auto const& biases = without_list(call.bias).biases;
    pipeline.terms.biases = make_tensor_map(where, rows_of_biases(biases), {bias_tile::rows, bias_tile::box_columns});
    pipeline.terms.sequence_rows = rows_between(biases, 0);
    pipeline.terms.head_rows = rows_between(biases, 1);
  }
  if constexpr (is_listed<Bias>) {
    pipeline.list = call.bias.list;
  }
  pipeline.queries = static_cast<std::int32_t>(s.queries);
  pipeline.keys = static_cast<std::int32_t>(s.keys);
  pipeline.padded_queries = static_cast<std::int32_t>(padded_tokens(s.queries));
  pipeline.padded_keys = static_cast<std::int32_t>(padded_tokens(s.keys));
  pipeline.query_heads = static_cast<std::int32_t>(s.query_heads);
  pipeline.key_heads = static_cast<std::int32_t>(s.key_heads);
  pipeline.band = key_band::of({s.queries, s.keys, call.options.window_left, call.options.keys_behind()});
  pipeline.query_lengths = call.query_lengths;
  pipeline.key_lengths = call.key_lengths;
  pipeline.schedule = schedule_of(call, shape::rows);
  pipeline.taken = reinterpret_cast<std::int32_t*>(call.counters.data);
  pipeline.channels = static_cast<std::int32_t>(s.channels_of_values());
}

/// How many ranges of splits there is memory for. 0 where lengths, which the host does not know, could give a work item
/// more tiles than a split can count.
template <class Method, class T, class Bias>
std::int64_t ranges_in_memory(attention_call<Method, T, Bias> const& call, int rows, int channels) {
  using slots = typename attention_split_output::slots_type;
  bool const has_lengths = call.query_lengths.data != nullptr || call.key_lengths.data != nullptr;
  bool const has_memory = is_aligned(call.work_splits.data) && call.work_splits.is_contiguous() &&
                          !(has_lengths && call.shape.keys / attention_padding >= attention_split::most_cost);
  return has_memory ? call.work_splits.size() / (2 * slots::floats_of_slot(rows, channels)) : 0;
}

template <class Kernel, class Architectures, class Method, class T, class Bias>
void run_warpgroup_attention(basic_cuda<Architectures> const& exec, attention_call<Method, T, Bias> const& call,
                             int multiprocessors) {
  using shape = typename Kernel::shape;
  using slots = typename attention_split_output::slots_type;
  auto const& heads = call.heads;
  Kernel program{};
  auto& pipeline = program.pipeline;
  set_operands(pipeline, call);
  pipeline.splits =
      attention_work_cost{pipeline.schedule, pipeline.band, pipeline.queries, pipeline.keys, shape::rows}.split_over(
          multiprocessors, ranges_in_memory(call, shape::rows, shape::channels));
  program.split_output.slots = slots::in(call.work_splits, 2 * pipeline.splits.ranges, shape::rows, shape::channels);
  program.queries = {call.queries, call.query_factor, static_cast<float>(Method::score_quantizer::highest)};
  pipeline.query_coders = call.queries.data != nullptr ? decltype(program.queries)::coders : 0;
  program.terms = {without_list(call.bias)};
  bool const needs_offsets = call.out.log_sum_exp.data != nullptr || call.sinks.data != nullptr;
  program.output = {call.out.result,
                    has_whole_vectors(call.out.result),
                    heads.values.scales.data,
                    heads.values.mean.data,
                    call.out.log_sum_exp,
                    needs_offsets ? heads.queries.mean_scores.data : nullptr,
                    call.sinks,
                    call.query_starts};
  if (!call.has_cleared_counters) {
    exec.clear(call.counters);
  }
  exec.run(program, min(pipeline.splits.turns(), multiprocessors));
  if (pipeline.splits.ranges > 0) {
    merge_attention_splits<Method, T> const merge{pipeline.splits, pipeline.schedule, program.split_output.slots,
                                                  writer_of(call),
                                                  merge_attention_splits<Method, T>::parts_of(pipeline.splits)};
    exec.run(merge, merge.groups());
  }
}

/// How warpgroup_attention weighs the scores of a call.
template <class Method, class Bias>
using weighing_of = attention_weighing<typename Method::softmax, Bias, quantized_regions<Method>::smooths_queries,
                                       typename Method::score_code>;

/// warpgroup_attention for program_channels().
template <int Channels, class Method, class T, class Bias>
using warpgroup_program =
    program_of_weighing<channels_of_weighing<Channels, weighing_of<Method, Bias>>, weighing_of<Method, Bias>, T>;

/// Why TMA cannot load the codes of a call's heads, or none.
template <class Method, class T, class Bias>
refusal refuses_maps(attention_call<Method, T, Bias> const& call, bool loads_queries) {
  auto const& heads = call.heads;
  return first_of(
      unless(!loads_queries || can_map(rows_of_heads(heads.queries.codes)), "TMA cannot load the codes of queries"),
      unless(can_map(rows_of_heads(heads.keys.codes)), "TMA cannot load the codes of keys"),
      unless(can_map(rows_of_heads(heads.values.codes)), "TMA cannot load the codes of values"));
}

/// attention_of_few_queries for `Channels` channels or fewer.
template <int Channels, class Method, class T>
using few_queries_program = attention_of_few_queries<Channels, Method, T, policy_of<few_queries_tuning<Channels>>(900)>;

}  // namespace detail

/// attention_of_few_queries: sm_90, up to 16 queries of a sequence.
struct quantized_decode_model {
  static constexpr char const* name = "quantized_decode (TMA, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(detail::refuses_types_of_attention<Exec, Call>(), detail::refuses_types_of_few_queries<Call>());
  }
  template <class Architectures, class Method, class T>
  static refusal refuses(basic_cuda<Architectures> const& exec, attention_call<Method, T> const& call) {
    refusal const why =
        call.queries.data != nullptr ? refusal{"queries have no codes yet"} : detail::refuses_few_queries(call);
    return why ? why : with_constant<64, 128, 256>(detail::program_channels(call.shape), [&](auto channels) {
      return first_of(detail::refuses_maps(call, false),
                      exec.template lacks<detail::few_queries_program<channels.value, Method, T>>());
    });
  }
  template <class Architectures, class Method, class T>
  static void run(basic_cuda<Architectures> const& exec, attention_call<Method, T> const& call) {
    with_constant<64, 128, 256>(detail::program_channels(call.shape), [&](auto channels) {
      detail::run_few_queries<detail::few_queries_program<channels.value, Method, T>>(exec, call);
    });
  }
};

/// warpgroup_attention: sm_90a.
struct quantized_forward_model {
  static constexpr char const* name = "quantized_forward (TMA, wgmma)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return detail::refuses_types_of_attention<Exec, Call>();
  }
  /// A call whose queries have no codes yet is taken: forward() passes queries only if codes_queries() has said that
  /// the program makes their codes.
  template <class Architectures, class Method, class T, class Bias>
  static refusal refuses(basic_cuda<Architectures> const& exec, attention_call<Method, T, Bias> const& call) {
    return call.queries.data != nullptr ? refusal{} : refuses_codes(exec, call);
  }
  /// Why it does not take the call with codes of all operands, or none.
  template <class Architectures, class Method, class T, class Bias>
  static refusal refuses_codes(basic_cuda<Architectures> const& exec, attention_call<Method, T, Bias> const& call) {
    refusal const why = detail::refuses_warpgroups(call, exec.state->multiprocessors());
    return why ? why : with_constant<64, 128, 192, 256>(detail::program_channels(call.shape), [&](auto channels) {
      return first_of(detail::refuses_maps(call, true),
                      exec.template lacks<detail::warpgroup_program<channels.value, Method, T, Bias>>());
    });
  }
  template <class Architectures, class Method, class T, class Bias>
  static void run(basic_cuda<Architectures> const& exec, attention_call<Method, T, Bias> const& call) {
    with_constant<64, 128, 192, 256>(detail::program_channels(call.shape), [&](auto channels) {
      using program_type = detail::warpgroup_program<channels.value, Method, T, Bias>;
      detail::run_warpgroup_attention<program_type>(exec, call, exec.state->multiprocessors());
    });
  }
};

namespace detail {

/// On sm_90 alone most calls run by other programs.
template <class Architectures>
struct mostly_runs_tiles<basic_cuda<Architectures>>
    : std::bool_constant<may_have_architecture(Architectures{}, 0, 900) ||
                         may_have_architecture(Architectures{}, 1000, 10000)> {};

}  // namespace detail

/// On sm_90a attention over codes of up to 256 channels runs by TMA and tensor cores, on other GPUs by mma.sync,
/// otherwise portably. Codes that lie two to a byte are widened first on sm_90 and later.
template <class Architectures, class Method, class T, class Bias>
struct models_for<basic_cuda<Architectures>, attention_call<Method, T, Bias>> {
 private:
  template <class... First, class... Second>
  static model_list<First..., Second...> join(model_list<First...>, model_list<Second...>);
  template <class... Models>
  using over_widened = model_list<over_widened_codes<Models>...>;
  /// Models for GPUs without wgmma, over widened codes only where sources are compiled for GPUs that need these.
  template <class... Models>
  using for_others = decltype(join(
      std::conditional_t<may_widen<basic_cuda<Architectures>, Method>, over_widened<Models...>, model_list<>>{},
      model_list<Models..., detail::attention_tiles_model>{}));

  using for_warpgroups =
      std::conditional_t<has_pairs<Method>, over_widened<quantized_decode_model, quantized_forward_model>,
                         model_list<quantized_decode_model, quantized_forward_model>>;

 public:
  /// The list of models. Sources that are compiled for sm_90 alone do not name the others.
  using type = decltype(join(
      for_warpgroups{}, std::conditional_t<detail::mostly_runs_tiles<basic_cuda<Architectures>>::value,
                                           for_others<detail::quantized_decode_by_warps_model,
                                                      detail::forward_in_e4m3_model, detail::forward_by_warps_model>,
                                           model_list<>>{}));
};

/// How many floats of memory the programs for sm_90a can use for work items that several groups share.
template <class Architectures, class Method>
std::int64_t floats_of_work_splits(basic_cuda<Architectures> const& exec, quantized_regions<Method> const& regions) {
  attention_shape const& s = regions.shape;
  bool const has_channels =
      s.channels % 16 == 0 && s.channels <= 256 && s.channels_of_values() % 16 == 0 && s.channels_of_values() <= 256;
  if (!basic_cuda<Architectures>::template is_compiled_for<900> || detail::refuses_codes<widened_method<Method>>() ||
      !has_channels) {
    return 0;
  }
  bool const has_few = detail::multiplies_few_queries<widened_method<Method>> && s.has_equal_channels();
  return detail::floats_of_work_splits(s, exec.state->multiprocessors(), has_few ? few_queries : 0);
}

namespace detail {

/// How many values in fp16 forward_by_warps can use memory for, over codes of this method.
template <class Method, class Architectures>
std::int64_t count_of_halves(basic_cuda<Architectures> const& exec, attention_shape const& s) {
  using for_types = attention_call<Method, bfloat16>;
  if constexpr (mostly_runs_tiles<basic_cuda<Architectures>>::value &&
                !forward_by_warps_model::refuses_types<basic_cuda<Architectures>, for_types>()) {
    return forward_by_warps_model::uses_halves<for_types>(exec, s)
               ? s.batch * s.key_heads * padded_tokens(s.keys) * s.channels_of_values()
               : 0;
  }
  return 0;
}

}  // namespace detail

/// How many values in fp16 forward_by_warps can use memory for: all where the device runs its products of fp16, and
/// sequences have enough queries that thread blocks would widen each code several times, or thread blocks no shared
/// memory to widen any. Codes that the device widens to bytes have what these have.
template <class Architectures, class Method>
std::int64_t count_of_halves(basic_cuda<Architectures> const& exec, quantized_regions<Method> const& regions) {
  if constexpr (may_widen<basic_cuda<Architectures>, Method>) {
    if (widens(exec)) {
      return detail::count_of_halves<widened_method<Method>>(exec, regions.shape);
    }
  }
  return detail::count_of_halves<Method>(exec, regions.shape);
}

/// On sm_90a warpgroup_attention makes codes of queries itself where they lie in whole vectors, lose no mean, and
/// neither log-sum-exps nor sinks need their scores against the mean key.
template <class Architectures, class Method, class T>
bool codes_queries(basic_cuda<Architectures> const& exec, attention_call<Method, T> const& call,
                   head_view<T const> const& queries) {
  constexpr bool makes_codes =
      !quantized_regions<Method>::smooths_queries && code_step<typename Method::score_quantizer> == 1 &&
      !detail::refuses_types_of_attention<basic_cuda<Architectures>, attention_call<Method, T>>();
  if constexpr (makes_codes) {
    bool const needs_scores = call.out.log_sum_exp.data != nullptr || call.sinks.data != nullptr;
    return !needs_scores && call.query_starts.first.data == nullptr && call.shape.batch * call.shape.queries > 0 &&
           call.shape.has_equal_channels() && detail::refuses_few_queries(call) && detail::has_whole_vectors(queries) &&
           !quantized_forward_model::refuses_codes(exec, call);
  }
  return false;
}

}  // namespace v0
}  // namespace tessera
