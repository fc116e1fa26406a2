// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_attention`: attention over queries, keys and values that are not quantized, in bfloat16 or float16. It is
/// called as `attention` is, so that one is exchanged for the other by a name:
///
///     using method = tessera::dense_attention;                            // or sage_attention2, or attention<...>
///     auto const plan = method::plan_forward(exec, {batch, query_heads, key_heads, queries, keys, channels});
///     method::forward(exec, attention_inputs<bfloat16>{q, k, v}, {.is_causal = true},
///                     attention_outputs<bfloat16>{result}, tessera::workspace(plan, memory));
///
/// It is no `attention<QK, PV>` of quantizers that leave values as they are, because most of what that has would be
/// missing: codes and scales, quantize() and operands(), forward() over codes that were made before, and what
/// ScoreQuantizer asks of QK. Few queries over many keys, or over blocks of tokens, are decode_attention's.
///
///     x = softmax_scale q k (+ bias)        result = sum of e^x v / sum of e^x        log_sum_exp = log of sum of e^x
///
/// Products of 16 bits are exact, and sums are in fp32. Weights are relative to about the largest score so far. They
/// are rounded to the type of the inputs before they are multiplied by values, and added up without that: results are
/// within about 2^-9 (bf16) or 2^-12 (fp16) of the largest values that have weight, before they are rounded themselves.
/// The log-sum-exp, and with it the sum of weights, has no such error. Which program runs, and with it the order of
/// additions, depends on the executor: explain() says which (exec/explain.hpp). Programs that share work items among
/// multiprocessors add up in an order that depends on the number of multiprocessors, too. Results of repeated calls are
/// the same to the last bit.
///
/// A score that is NaN or infinite makes the results of its query NaN; minus infinity is a weight of zero. Tokens
/// beyond the length of their sequence are not read. Values that are infinite or NaN reach all queries of a tile of
/// keys, since a weight of zero times them is NaN: also queries of the same block that do not see them for the mask.
///
/// Memory: a workspace of a few bytes, and, where blocks of queries do not fill all multiprocessors, for sums of splits
/// of the keys. Inputs and outputs are read and written where they lie. No call waits or allocates.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp
#include <type_traits>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/attention/detail/attention_checks.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/refused_call.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/dense_tiles.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/attention_block_list.hpp>
#include <tessera/view/attention_shape.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/sequence_lengths.hpp>
#include <tessera/view/sequence_starts.hpp>

namespace tessera {
inline namespace v0 {

/// A call of attention over operands of type T, which are not quantized. Result: the type of results.
template <class T, class Result, class Bias = no_bias>
struct dense_attention_call {
  using value_type = T;
  using result_type = Result;  ///< the type of results
  static constexpr char const* function = "dense_attention.forward";

  attention_shape shape;                 ///< extents of the operands
  attention_options options;             ///< options; softmax_scale below is in place of the options' own
  float softmax_scale;                   ///< what scores are multiplied by, usually 1 / sqrt(channels)
  head_view<T const> queries;            ///< batch x query heads x queries x channels
  head_view<T const> keys;               ///< batch x key heads x keys x channels
  head_view<T const> values;             ///< batch x key heads x keys x channels
  attention_outputs<Result> out;         ///< where results go
  sequence_lengths query_lengths = {};   ///< queries of each sequence; null: all are whole
  sequence_lengths key_lengths = {};     ///< keys of each sequence; null: all are whole
  sequence_starts query_starts = {};     ///< where the queries of each sequence begin, if sequences are packed
  sequence_starts key_starts = {};       ///< where the keys of each sequence begin, if sequences are packed
  array_view<float const> sinks = {};    ///< a score for each query head, or null
  Bias bias = {};                        ///< added to scores, before exp()
  attention_block_list block_list = {};  ///< which tiles of keys are seen; null: all
  /// Memory by which programs hand out work items; null: the portable one runs.
  array_view<std::uint32_t> counters = {};
  array_view<float> work_splits = {};  ///< memory for work items that several groups share; null: none is shared
  std::int64_t key_splits = 0;         ///< dense_splits::key_splits that this memory is for; 0: not counted

  /// Whether there is nothing to do.
  [[nodiscard]] bool is_empty() const { return shape.batch * shape.queries == 0; }
};

namespace detail {

template <class T, class Result, class Bias>
attention_writer<decode_method, Result> writer_of(dense_attention_call<T, Result, Bias> const& call) {
  return {call.shape,          {}, {}, {}, call.query_lengths, call.sinks, call.query_starts, call.out.result,
          call.out.log_sum_exp};
}

/// The portable program, for `Channels` channels or fewer.
template <int Channels, class T, class Result, class Bias>
dense_tiles<T, Result, Bias, Channels> dense_tiles_of(dense_attention_call<T, Result, Bias> const& call) {
  return {call.shape,
          {call.queries, call.query_lengths, call.query_starts},
          {call.keys, call.key_lengths, call.key_starts},
          {call.values, call.key_lengths, call.key_starts},
          call.softmax_scale,
          call.options.window_left,
          call.options.keys_behind(),
          call.block_list,
          call.bias,
          writer_of(call)};
}

}  // namespace detail

/// Enqueues attention by the portable program; run() (exec/run.hpp) may have a faster one.
template <Executor Exec, class T, class Result, class Bias>
void run_portably(Exec const& exec, dense_attention_call<T, Result, Bias> const& call) {
  auto const enqueue = [&](auto const& program) { exec.run(program, program.groups()); };
  if (call.shape.channels <= 64) {
    enqueue(detail::dense_tiles_of<64>(call));
  } else if (call.shape.channels <= 128) {
    enqueue(detail::dense_tiles_of<128>(call));
  } else {
    enqueue(detail::dense_tiles_of<256>(call));
  }
}

/// How the executor's programs for dense_attention let several groups share work items.
struct dense_splits {
  std::int64_t floats = 0;      ///< the memory that they can use
  std::int64_t key_splits = 0;  ///< the splits of the keys of each work item; 0: the programs cut the last ones only
};

/// What programs of an executor that has no faster ones share: nothing.
template <Executor Exec>
dense_splits dense_splits_of(Exec const&, attention_shape const&) {
  return {};
}

struct dense_attention {
  /// The workspace of forward(). No option changes it.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, attention_shape const& shape,
                                     attention_options const& /*options*/ = {}) {
    checks::check_shape(where, shape);
    detail::check_equal_channels(where, shape);
    return regions(exec, shape).plan;
  }

  /// Enqueues attention. Throws shape_error or value_error for arguments that do not fit together. T: bfloat16 or
  /// float16. Result: bfloat16, float16 or float. Functions: attention_functions with a bias, and nothing else. Results
  /// must not overlap inputs.
  template <Executor Exec, class T = bfloat16, class Result = T, class Functions = attention_functions<>>
  static void forward(Exec const& exec, attention_inputs<T> const& in, attention_options const& options,
                      attention_outputs<Result> const& out, workspace const& space, Functions const& functions = {}) {
    using bias_type = typename Functions::bias_type;
    static_assert(is_16_bit_float<T>, "tessera: dense_attention takes queries, keys and values of bfloat16 or float16");
    static_assert(std::is_same_v<Functions, attention_functions<bias_type>>,
                  "tessera: dense_attention reads queries and keys as they are stored, not through functions");
    static_assert(!is_listed<bias_type>, "tessera: lists of tiles for dense_attention are the inputs' block_list");
    attention_shape const shape = checks::check_inputs(where, in);
    detail::check_equal_channels(where, shape);
    check<value_error>(options.softmax_scale >= 0 && options.softmax_scale < infinity, where,
                       ": the scale of the softmax is ", options.softmax_scale, " but must be finite and not negative");
    checks::check_packed_inputs(where, shape, in);
    checks::check_packed_outputs(where, in, out);
    regions const layout(exec, shape, workspace_plan::record::sizes);
    space.check_room(where, layout.plan.bytes(), shape.batch, " sequences of ", shape.query_heads, " and ",
                     shape.key_heads, " heads, ", shape.queries, " queries and ", shape.keys, " keys, of ",
                     shape.channels, " channels,");
    dense_attention_call<T, Result, bias_type> call{
        shape,         options,  scale_of(shape, options), in.queries,     in.keys,
        in.values,     out,      in.query_lengths,         in.key_lengths, in.query_starts,
        in.key_starts, in.sinks, functions.bias,           in.block_list};
    checks::check_call(where, call);
    checks::check_input_places(exec, where, in, space, functions);
    checks::check_call_places(exec, where, call);
    call.counters = space[layout.counters];
    call.work_splits = layout.splits.count > 0 ? space[layout.splits] : array_view<float>{};
    call.key_splits = layout.of_splits.key_splits;
    run(exec, call);
  }

  /// Refuses calls of forward() with arguments that it does not take, and says at compile time what it takes.
  template <class Exec, class In = anything, class Options = attention_options, class Out = anything, class... More>
  requires(!(MadeOrBraces<In, attention_inputs> && IsFirst<attention_options, Options> &&
             MadeOrBraces<Out, attention_outputs> &&
             IsFirst<workspace, More...>)) static void forward(Exec const&, In const&, Options const&, Out const&,
                                                               More const&...) {
    static_assert(never<In>,
                  "tessera: dense_attention.forward takes an executor, attention_inputs<T>, attention_options, "
                  "attention_outputs<Result>, a workspace of plan_forward(), and perhaps attention_functions with a "
                  "bias; in braces without a type T and Result are bfloat16");
  }

 private:
  using checks = detail::attention_checks<decode_method>;
  static constexpr char const* where = dense_attention_call<bfloat16, bfloat16>::function;

  struct regions {
    dense_splits of_splits;
    workspace_plan plan;
    region<std::uint32_t> counters;  ///< a counter of work items
    region<float> splits;            ///< work items that several groups share

    template <Executor Exec>
    regions(Exec const& exec, attention_shape const& shape,
            workspace_plan::record what = workspace_plan::record::entries)
        : of_splits(dense_splits_of(exec, shape)),
          plan(where, what),
          counters(plan.add<std::uint32_t>("counters", 1)),
          splits(plan.add<float>("splits of work items", of_splits.floats)) {}
  };

  /// The factor of scores, natural.
  static float scale_of(attention_shape const& shape, attention_options const& options) {
    double const plain = 1.0 / ::sqrt(static_cast<double>(shape.channels));
    return options.softmax_scale > 0 ? options.softmax_scale : static_cast<float>(plain);
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/attention/dense_attention.cuh>
#endif
