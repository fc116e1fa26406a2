// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention`: attention over queries, keys and values that are quantized on the way, or were quantized before.
///
///     #include <tessera/algorithm/attention/attention.hpp>
///     #include <tessera/quantize/granularity.hpp>
///     #include <tessera/quantize/scaled_float.hpp>
///     #include <tessera/quantize/smoothed.hpp>
///     #include <tessera/quantize/symmetric.hpp>
///
///     using method = tessera::attention<smoothed<symmetric_quantizer<8, per_thread>>, float8_quantizer<float8_e4m3>>;
///     auto const plan = method::plan(exec, {batch, query_heads, key_heads, queries, keys, channels});
///     method::forward(exec, attention_inputs<bfloat16>{q, k, v}, {.is_causal = true},
///                     attention_outputs<bfloat16>{result}, tessera::workspace(plan, memory));
///
/// Equations, errors and costs: sage_attention2.hpp, whose aliases are `attention` with the paper's parameters. The
/// portable program runs on any executor, with any strides. No call waits or allocates.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp
#include <type_traits>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/attention/quantized_attention.hpp>
#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/refused_call.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/attention/quantized_forward.hpp>
#include <tessera/reduce/attention_softmax.hpp>
#include <tessera/reduce/online_softmax.hpp>

namespace tessera {
inline namespace v0 {

/// A call of attention over quantized operands.
template <class Method, class T, class Bias = no_bias>
struct attention_call {
  /// How operands are coded.
  using method = Method;
  using value_type = T;
  static constexpr char const* function = "attention.forward";

  attention_shape shape;                 ///< extents of the operands
  attention_options options;             ///< options; the softmax's scale is in the scales of queries already
  quantized_heads<Method> heads;         ///< codes, scales and means
  attention_outputs<T> out;              ///< where results go
  sequence_lengths query_lengths = {};   ///< queries of each sequence; null: all are whole
  sequence_lengths key_lengths = {};     ///< keys of each sequence; null: all are whole
  array_view<float const> sinks = {};    ///< a score for each query head, or null
  Bias bias = {};                        ///< added to scores, natural
  attention_block_list block_list = {};  ///< which tiles of keys are seen; null: all
  attention_partials<typename Method::softmax::state_type> partials = {};  ///< memory for splits of the keys, or null
  /// Where queries and results of sequences begin.
  sequence_starts query_starts = {};
  /// Memory by which programs hand out work items; null: the portable one runs.
  array_view<std::uint32_t> counters = {};
  array_view<float> work_splits = {};  ///< memory for work items that several groups share; null: none is shared
  bool has_cleared_counters = false;   ///< whether `counters` are zero when what is enqueued here begins
  /// Queries whose codes the program makes itself, which forward() sets if codes_queries() has said that the program
  /// can; null, as users' calls have them: `heads` has their codes.
  head_view<T const> queries = {};
  float query_factor = 0;  ///< what the scales of these queries are multiplied by after codes are made

  /// Whether there is nothing to do.
  [[nodiscard]] bool is_empty() const { return shape.batch * shape.queries == 0; }
};

namespace detail {

template <class Method, class T, class Bias>
attention_writer<Method, T> writer_of(attention_call<Method, T, Bias> const& call) {
  auto const& heads = call.heads;
  return {call.shape, heads.queries.mean_scores, heads.values.scales, heads.values.mean,   call.query_lengths,
          call.sinks, call.query_starts,         call.out.result,     call.out.log_sum_exp};
}

/// Enqueues the merging of splits of the keys, if the call has memory for splits.
template <Executor Exec, class Method, class T, class Bias>
void merge_splits(Exec const& exec, attention_call<Method, T, Bias> const& call) {
  if (call.partials.rows.data != nullptr) {
    merge_attention<Method, T> const merge{call.partials, writer_of(call)};
    exec.run(merge, merge.groups());
  }
}

/// The portable program, for `Channels` channels or fewer.
template <int Channels, class Method, class T, class Bias>
attention_tiles<Method, T, Bias, Channels> tiles_of(attention_call<Method, T, Bias> const& call) {
  auto const& heads = call.heads;
  std::int64_t const right = call.options.keys_behind();
  return {call.shape,
          heads.queries,
          heads.keys,
          heads.values,
          call.query_lengths,
          call.key_lengths,
          call.options.window_left,
          right,
          call.block_list,
          call.bias,
          writer_of(call),
          call.partials};
}

}  // namespace detail

/// Enqueues attention over quantized operands by the portable programs; run() (exec/run.hpp) may have faster ones.
template <Executor Exec, class Method, class T, class Bias>
void run_portably(Exec const& exec, attention_call<Method, T, Bias> const& call) {
  auto const enqueue = [&](auto const& program) { exec.run(program, program.groups()); };
  if (call.shape.channels <= 64) {
    enqueue(detail::tiles_of<64>(call));
  } else if (call.shape.channels <= 128) {
    enqueue(detail::tiles_of<128>(call));
  } else {
    enqueue(detail::tiles_of<256>(call));
  }
  detail::merge_splits(exec, call);
}

/// Whether the executor's program for a call makes codes of queries itself, if it is given `queries`.
template <Executor Exec, class Method, class T, class Bias>
bool codes_queries(Exec const&, attention_call<Method, T, Bias> const&, head_view<T const> const& /*queries*/) {
  return false;
}

/// How many floats of memory the executor's program can use for work items that several groups share.
template <Executor Exec, class Method>
std::int64_t floats_of_work_splits(Exec const&, quantized_regions<Method> const&) {
  return 0;
}

/// Quantized attention. QK: the quantizer of queries and keys, with a granularity: symmetric_quantizer<8 or 4, ...>,
/// which may be two_to_a_byte, or scaled_float_quantizer<float8_e4m3, ...>; either may be smoothed. PV: the quantizer
/// of values, which may be smoothed, and of the softmax's weights, whose scale is fixed: float8_quantizer,
/// scaled_float_quantizer<float16> or symmetric_quantizer<8>. Products of 8-bit floats have tensor cores from sm_89 on;
/// before, the portable program widens them to fp16 (tile/cuda/gemm_tile.cuh). On sm_90 their sums keep about 13 bits
/// of mantissa (tile/gemm_operand.hpp), beside codes of 4.
template <ScoreQuantizer QK, ScaleQuantizer PV, AttentionSoftmax<PV> Softmax = online_softmax<float>>
struct attention {
  static_assert(!is_smoothed_by<block_mean, PV>, "tessera: values are smoothed by the mean of all tokens");
  /// How operands are coded, for programs.
  using method = attention_method<QK, PV, Softmax>;
  /// The codes, scales and means of the operands.
  using heads = quantized_heads<method>;
  /// The regions of a workspace of plan().
  using regions = quantization_regions<method>;

  /// The workspace that forward() and quantize() need, with room for the codes and scales of `parts`.
  template <Executor Exec>
  static workspace_plan plan(Exec const& exec, attention_shape const& shape, quantized_parts parts = {}) {
    check_shape(where, shape);
    regions const places(where, shape, parts);
    workspace_plan plan = places.plan;
    plan.template add<float>("splits of work items", parts.queries ? floats_of_work_splits(exec, places) : 0);
    return plan;
  }

  /// The codes and scales in a workspace of plan() with the same extents and parts.
  static heads operands(attention_shape const& shape, workspace const& space, quantized_parts parts = {}) {
    return regions(where, shape, parts).operands(space);
  }

  /// Memory for splits of the keys, in a workspace of plan() with the same extents and parts; null where rows alone
  /// make enough groups.
  static attention_partials<typename Softmax::state_type> partials(attention_shape const& shape, workspace const& space,
                                                                   quantized_parts parts = {}) {
    return regions(where, shape, parts).partials(space);
  }

  /// Memory for counters of work items, in a workspace of plan() with the same extents and parts.
  static array_view<std::uint32_t> counters(attention_shape const& shape, workspace const& space,
                                            quantized_parts parts = {}) {
    return space[regions(where, shape, parts).counters];
  }

  /// Memory for work items that several groups share, in a workspace of plan() with the same executor; null where none
  /// is shared.
  template <Executor Exec>
  static array_view<float> work_splits(Exec const& exec, attention_shape const& shape, workspace const& space,
                                       quantized_parts parts = {}) {
    return work_splits(exec, regions(where, shape, parts, workspace_plan::record::sizes), space);
  }

  /// Enqueues quantization and attention. Throws shape_error or value_error for arguments that do not fit together. T,
  /// Result: bfloat16, float16 or float. Functions: attention_functions. Results must not overlap inputs. Where the
  /// executor's program makes codes of queries itself (codes_queries()), the workspace has none of them afterwards:
  /// quantize() makes codes to keep.
  template <Executor Exec, class T = bfloat16, class Result = T, class Functions = attention_functions<>>
  static void forward(Exec const& exec, attention_inputs<T> const& in, attention_options const& options,
                      attention_outputs<Result> const& out, workspace const& space, Functions const& functions = {}) {
    attention_shape const shape = check_inputs(where, in);
    regions const places(where, shape, {}, workspace_plan::record::sizes);
    check_room(where, places, space);
    heads quantized = places.operands(space);
    if (out.log_sum_exp.data == nullptr && in.sinks.data == nullptr) {
      quantized.queries.mean_scores = {};
    }
    attention_call<method, Result, typename Functions::bias_type> call{
        shape,          options,  quantized,      out,           in.query_lengths,
        in.key_lengths, in.sinks, functions.bias, in.block_list, places.partials(space),
        in.query_starts};
    call.counters = space[places.counters];
    call.work_splits = work_splits(exec, places, space);
    check_call(where, call);
    exec.clear(call.counters);  // first: between codes and attention it would keep their launches apart
    call.has_cleared_counters = true;
    attention_inputs<T> uncoded = in;
    if constexpr (std::is_same_v<T, Result> && std::is_same_v<Functions, attention_functions<>>) {
      if (codes_queries(exec, call, in.queries)) {
        call.queries = in.queries;
        call.query_factor = scale_of(shape, options) * detail::log2_of_e;
        uncoded.queries = {};
      }
    }
    make_codes(exec, where, places, uncoded, options, quantized, space, functions);
    run(exec, call);
  }

  /// Enqueues the quantization of the inputs that are not null. Codes and scales go to `out`, which may lie in the same
  /// workspace, of plan() with the same parts, or elsewhere. Queries without keys need the mean of keys in `out` if the
  /// method smooths keys, and the codes of keys in `out` if it smooths queries. Of the options only `softmax_scale`
  /// matters.
  template <Executor Exec, class T, class Functions = attention_functions<>>
  static void quantize(Exec const& exec, attention_shape const& shape, attention_inputs<T> const& in,
                       attention_options const& options, heads const& out, workspace const& space,
                       quantized_parts parts = {}, Functions const& functions = {}) {
    constexpr char const* here = "attention.quantize";
    check_shape(here, shape);
    check_heads(here, "queries", in.queries, shape.batch, shape.query_heads, shape.queries, shape.channels);
    check_heads(here, "keys", in.keys, shape.batch, shape.key_heads, shape.keys, shape.channels);
    check_heads(here, "values", in.values, shape.batch, shape.key_heads, shape.keys, shape.channels);
    check_lengths(here, shape, in.query_lengths, in.key_lengths);
    if (in.queries.data != nullptr && regions::smooths_keys) {
      check<value_error>(out.keys.mean.data != nullptr, here, ": queries need the mean of keys, which is null");
    }
    bool const needs_keys = in.queries.data != nullptr && regions::smooths_queries && in.keys.data == nullptr;
    if (needs_keys && shape.keys > 0) {
      check<value_error>(out.keys.codes.data != nullptr, here,
                         ": smoothed queries need keys or their codes, which are null");
    }
    check_operands(here, shape, out, in.queries.data != nullptr, in.keys.data != nullptr || needs_keys,
                   in.values.data != nullptr);
    regions const places(here, shape, parts, workspace_plan::record::sizes);
    check_room(here, places, space);
    make_codes(exec, here, places, in, options, out, space, functions);
  }

  /// Enqueues attention over operands that quantize() made.
  template <Executor Exec, class Result, class Bias>
  static void forward(Exec const& exec, attention_call<method, Result, Bias> const& call) {
    check_shape(where, call.shape);
    check_call(where, call);
    check<value_error>(call.queries.data == nullptr, where,
                       ": the call has queries without codes, which only attention.forward of inputs gives programs");
    check_operands(where, call.shape, call.heads, true, true, true);
    if (regions::smooths_keys && (call.out.log_sum_exp.data != nullptr || call.sinks.data != nullptr)) {
      check<value_error>(call.heads.queries.mean_scores.data != nullptr || call.shape.queries == 0, where,
                         ": log-sum-exps and sinks need the scores of the mean key, which are null");
    }
    run(exec, call);
  }

  /// Refuses calls of forward() with arguments that it does not take, and says at compile time what it takes.
  template <Executor Exec, class In = anything, class Options = attention_options, class Out = anything, class... More>
  requires(!(MadeOrBraces<In, attention_inputs> && IsFirst<attention_options, Options> &&
             MadeOrBraces<Out, attention_outputs> &&
             IsFirst<workspace, More...>)) static void forward(Exec const&, In const&, Options const&, Out const&,
                                                               More const&...) {
    refuse<In>();
  }
  /// Refuses calls of forward() that give outputs before options, and says at compile time what it takes.
  template <Executor Exec, class In = anything, class Out = attention_outputs<bfloat16>, class... More>
  requires Made<Out, attention_outputs>
  static void forward(Exec const&, In const&, Out const&, attention_options const&, More const&...) { refuse<In>(); }
  /// Refuses calls of forward() with braces that hold other things, and says at compile time what it takes.
  template <class... None>
  static void forward(anything, anything, attention_options const&, anything, anything, anything = {}) {
    refuse<None...>();
  }

 private:
  template <class... Given>
  static void refuse() {
    static_assert(never<Given...>,
                  "tessera: attention.forward takes an executor, attention_inputs<T>, attention_options, "
                  "attention_outputs<Result>, a workspace of plan(), and perhaps attention_functions; in braces "
                  "without a type T and Result are bfloat16");
  }

  static constexpr char const* where = "attention.forward";

  static void check_room(char const* function, regions const& places, workspace const& space) {
    attention_shape const& s = places.shape;
    space.check_room(function, places.plan.bytes(), s.batch, " sequences of ", s.query_heads, " and ", s.key_heads,
                     " heads, ", s.queries, " queries and ", s.keys, " keys, of ", s.channels, " channels,");
  }

  template <Executor Exec>
  static array_view<float> work_splits(Exec const& exec, regions const& places, workspace const& space) {
    std::int64_t const floats = places.parts.queries ? floats_of_work_splits(exec, places) : 0;
    return floats > 0 ? space[region<float>{places.plan.bytes(), floats}] : array_view<float>{};
  }

  template <Executor Exec, class T, class Functions>
  static void make_codes(Exec const& exec, char const* function, regions const& places, attention_inputs<T> const& in,
                         attention_options const& options, heads const& out, workspace const& space,
                         Functions const& functions) {
    attention_shape const& shape = places.shape;
    check_starts(function, shape, in.query_starts, in.key_starts);
    check<value_error>(options.softmax_scale >= 0 && options.softmax_scale < infinity, function,
                       ": the scale of the softmax is ", options.softmax_scale, " but must be finite and not negative");
    run(exec, quantize_call<method, T, Functions>{shape, scale_of(shape, options), in, out, places, space, functions});
  }
  /// The factor of scores, natural.
  static float scale_of(attention_shape const& shape, attention_options const& options) {
    return options.softmax_scale > 0 ? options.softmax_scale
                                     : static_cast<float>(1.0 / ::sqrt(static_cast<double>(shape.channels)));
  }

  static void check_shape(char const* function, attention_shape const& shape) {
    check<shape_error>(shape.batch >= 0 && shape.queries >= 0 && shape.keys >= 0, function, ": there are ", shape.batch,
                       " sequences of ", shape.queries, " queries and ", shape.keys, " keys but none must be negative");
    check<shape_error>(shape.key_heads >= 1 && shape.query_heads >= 1 && shape.query_heads % shape.key_heads == 0,
                       function, ": there are ", shape.query_heads,
                       " query heads, which are no whole number for each of ", shape.key_heads, " key heads");
    constexpr std::int64_t most = std::int64_t{1} << 48;
    check<shape_error>(max(shape.batch, max(shape.queries, shape.keys)) <= most && shape.query_heads <= most, function,
                       ": there are ", shape.batch, " sequences of ", shape.query_heads, " heads, ", shape.queries,
                       " queries and ", shape.keys, " keys but none can be more than ", most);
    check<shape_error>(shape.channels >= 16 && shape.channels <= 256 && shape.channels % 16 == 0, function,
                       ": heads have ", shape.channels, " channels but must have a multiple of 16 up to 256");
  }

  template <class T>
  static attention_shape check_inputs(char const* function, attention_inputs<T> const& in) {
    attention_shape const shape{in.queries.extent(0), in.queries.extent(1), in.keys.extent(1),
                                in.queries.extent(2), in.keys.extent(2),    in.queries.extent(3)};
    check<shape_error>(in.keys.extent(0) == shape.batch, function, ": keys have ", in.keys.extent(0),
                       " sequences but queries have ", shape.batch);
    check<shape_error>(in.keys.extent(3) == shape.channels, function, ": keys have ", in.keys.extent(3),
                       " channels but queries have ", shape.channels);
    check_shape(function, shape);
    for (int dimension = 0; dimension < 4; ++dimension) {
      check<shape_error>(in.values.extent(dimension) == in.keys.extent(dimension), function, ": dimension ", dimension,
                         " of the values has ", in.values.extent(dimension), " elements but that of the keys has ",
                         in.keys.extent(dimension));
    }
    check_memory(function, "queries", in.queries);
    check_memory(function, "keys", in.keys);
    check_memory(function, "values", in.values);
    return shape;
  }

  template <class T>
  static void check_heads(char const* function, char const* what, head_view<T const> found, std::int64_t batch,
                          std::int64_t count, std::int64_t tokens, std::int64_t channels) {
    check_extents(function, what, found, {batch, count, tokens, channels});
  }

  /// Throws for a view that has elements but no memory, and for one with memory that has other extents than expected.
  template <class T, int Rank>
  static void check_extents(char const* function, char const* what, view<T, Rank> found,
                            std::int64_t const (&expected)[Rank]) {
    check_memory(function, what, found);
    for (int dimension = 0; found.data != nullptr && dimension < Rank; ++dimension) {
      check<shape_error>(found.extent(dimension) == expected[dimension], function, ": dimension ", dimension,
                         " of the ", what, " has ", found.extent(dimension), " elements but needs ",
                         expected[dimension]);
    }
  }

  /// Checks extents, and throws for strides of 0, except from sequence to sequence where sequences lie one behind the
  /// other.
  template <class T, int Rank>
  static void check_output(char const* function, char const* what, view<T, Rank> found,
                           std::int64_t const (&expected)[Rank], bool has_starts) {
    check_extents(function, what, found, expected);
    bool const has_elements = found.data != nullptr && found.size() > 0;
    for (int dimension = has_starts ? 1 : 0; has_elements && dimension < Rank; ++dimension) {
      check<shape_error>(found.extent(dimension) < 2 || found.stride(dimension) != 0, function, ": dimension ",
                         dimension, " of the ", what, " has ", found.extent(dimension), " elements with a stride of 0");
    }
  }

  static void check_lengths(char const* function, attention_shape const& shape, sequence_lengths queries,
                            sequence_lengths keys) {
    check_extents(function, "lengths of queries", queries, {shape.batch});
    check_extents(function, "lengths of keys", keys, {shape.batch});
  }

  static void check_starts(char const* function, attention_shape const& shape, sequence_starts const& queries,
                           sequence_starts const& keys) {
    check_extents(function, "starts of queries", queries.first, {shape.batch});
    check_extents(function, "starts of keys", keys.first, {shape.batch});
    check<shape_error>(queries.total >= 0 && keys.total >= 0, function, ": sequences have ", queries.total,
                       " queries and ", keys.total, " keys in all but neither must be negative");
  }

  template <class Call>
  static void check_call(char const* function, Call const& call) {
    attention_shape const& s = call.shape;
    attention_options const& o = call.options;
    check<value_error>(o.window_left >= -1 && o.window_right >= -1, function, ": the window has ", o.window_left,
                       " keys to the left and ", o.window_right, " to the right but neither must be below -1");
    check<shape_error>(call.out.result.data != nullptr || s.batch == 0 || s.queries == 0, function,
                       ": the result has no memory but ", checked_multiply(function, s.batch, s.query_heads, s.queries),
                       " rows");
    bool const has_starts = call.query_starts.first.data != nullptr;
    check_output(function, "result", call.out.result, {s.batch, s.query_heads, s.queries, s.channels}, has_starts);
    check_output(function, "log-sum-exps", call.out.log_sum_exp, {s.batch, s.query_heads, s.queries}, has_starts);
    check_starts(function, s, call.query_starts, {});
    check_lengths(function, s, call.query_lengths, call.key_lengths);
    check_extents(function, "sinks", call.sinks, {s.query_heads});
    std::int64_t const blocks = divide_up(s.queries, std::int64_t{block_mean::tokens});
    check_extents(function, "counts of the block list", call.block_list.counts, {s.batch, s.query_heads, blocks});
    if (call.block_list.counts.data != nullptr) {
      check_extents(function, "tiles of the block list", call.block_list.tiles,
                    {s.batch, s.query_heads, blocks, call.block_list.tiles.extent(3)});
    }
    std::int64_t const splits = call.partials.splits();
    check<value_error>(splits <= most_attention_splits, function, ": ", splits,
                       " splits of rows, of which there may be ", most_attention_splits);
    check_extents(function, "splits of rows", call.partials.rows, {splits, s.batch, s.query_heads, s.queries});
    if (call.partials.rows.data != nullptr) {
      check<value_error>(call.partials.totals.data != nullptr, function, ": the totals of splits of rows are null");
      check_extents(function, "totals of splits", call.partials.totals,
                    {splits, s.batch, s.query_heads, s.queries, s.channels});
    }
  }

  /// Throws unless codes or scales, if needed, are there, contiguous and of the extents that quantized_operands.hpp
  /// says.
  template <class T, int Rank>
  static void check_operand(char const* function, char const* what, view<T, Rank> found, bool is_needed,
                            std::int64_t const (&expected)[Rank]) {
    view<T, Rank> const needed(found.data, expected);
    check<value_error>(!is_needed || found.data != nullptr || needed.is_empty(), function, ": the ", what, " are null");
    if (is_needed) {
      check_extents(function, what, found, expected);
      check<shape_error>(found.data == nullptr || found.is_contiguous(), function, ": the ", what,
                         " are not contiguous: the last two strides are ", found.stride(Rank - 2), " and ",
                         found.stride(Rank - 1));
    }
  }

  static void check_operands(char const* function, attention_shape const& s, heads const& out, bool has_queries,
                             bool has_keys, bool has_values) {
    std::int64_t const queries = padded_tokens(s.queries);
    std::int64_t const keys = padded_tokens(s.keys);
    std::int64_t const elements = s.channels / codes_in<typename method::score_code>;
    std::int64_t const query_scales = method::query_groups::count(queries);
    std::int64_t const key_scales = method::key_groups::count(keys);
    check_operand(function, "codes of queries", out.queries.codes, has_queries,
                  {s.batch, s.query_heads, queries, elements});
    check_operand(function, "scales of queries", out.queries.scales, has_queries,
                  {s.batch, s.query_heads, query_scales});
    check_operand(function, "scores of mean queries", out.queries.corrections, has_queries && regions::smooths_queries,
                  {s.batch, s.query_heads, divide_up(s.queries, std::int64_t{block_mean::tokens}), keys});
    check_extents(function, "scores of the mean key", out.queries.mean_scores, {s.batch, s.query_heads, s.queries});
    check_operand(function, "codes of keys", out.keys.codes, has_keys, {s.batch, s.key_heads, keys, elements});
    check_operand(function, "scales of keys", out.keys.scales, has_keys, {s.batch, s.key_heads, key_scales});
    check_operand(function, "means of keys", out.keys.mean, has_keys && regions::smooths_keys,
                  {s.batch, s.key_heads, s.channels});
    check_operand(function, "codes of values", out.values.codes, has_values,
                  {s.batch, s.key_heads, keys / attention_padding, s.channels, attention_padding});
    check_operand(function, "scales of values", out.values.scales, has_values, {s.batch, s.key_heads, s.channels});
    check_operand(function, "means of values", out.values.mean, has_values && regions::smooths_values,
                  {s.batch, s.key_heads, s.channels});
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/attention/attention.cuh>
#endif
