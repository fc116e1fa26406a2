// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention`: attention over queries, keys and values that are quantized in the call, or were quantized before.
///
///     #include <tessera/algorithm/attention/attention.hpp>
///     #include <tessera/quantize/granularity.hpp>
///     #include <tessera/quantize/scaled_float.hpp>
///     #include <tessera/quantize/smoothed.hpp>
///     #include <tessera/quantize/symmetric.hpp>
///
///     using method = tessera::attention<smoothed<symmetric_quantizer<8, per_thread>>, float8_quantizer<float8_e4m3>>;
///     auto const plan = method::plan_forward(exec, {batch, query_heads, key_heads, queries, keys, channels});
///     method::forward(exec, attention_inputs<bfloat16>{q, k, v}, {.is_causal = true},
///                     attention_outputs<bfloat16>{result}, tessera::workspace(plan, memory));
///
/// Values may have other channels than queries and keys, which attention_shape::value_channels says; results have those
/// of values.
///
/// Equations, errors and costs: sage_attention2.hpp, whose aliases are `attention` with the paper's parameters. The
/// portable program runs on any executor, with any strides. No call waits or allocates.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp
#include <type_traits>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/attention/detail/attention_checks.hpp>
#include <tessera/algorithm/attention/detail/call_programs.hpp>
#include <tessera/algorithm/attention/quantized_attention.hpp>
#include <tessera/algorithm/attention/widened_codes.hpp>
#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/refused_call.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/map/no_bias.hpp>
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
  Bias bias = {};                        ///< added to scores, before exp()
  attention_block_list block_list = {};  ///< which tiles of keys are seen; null: all
  attention_partials<typename Method::softmax::state_type> partials = {};  ///< memory for splits of the keys, or null
  /// Where the queries and the results of each sequence begin, if sequences are packed.
  sequence_starts query_starts = {};
  /// Memory by which programs hand out work items; null: the portable one runs.
  array_view<std::uint32_t> counters = {};
  array_view<float> work_splits = {};  ///< memory for work items that several groups share; null: none is shared
  bool has_cleared_counters = false;   ///< whether `counters` are zero when the enqueued programs begin
  /// Queries whose codes the program makes itself. forward() sets them if codes_queries() says that the program can.
  /// Null, as in users' calls: `heads` has the codes of queries.
  head_view<T const> queries = {};
  float query_factor = 0;  ///< what the scales of these queries are multiplied by after codes are made
  /// Memory for codes that lie two to a byte and that programs multiply in bytes (attention::widened()); null: only
  /// programs that multiply pairs run.
  array_view<std::byte> widened = {};
  /// Memory for values in fp16, for programs that multiply them so (attention::halves_of_values()); null: each of their
  /// thread blocks widens codes.
  array_view<float16> halves_of_values = {};

  /// Whether there is nothing to do.
  [[nodiscard]] bool is_empty() const { return shape.batch * shape.queries == 0; }
};

/// A call over codes two to a byte as one over codes in bytes, which lie in the call's memory for them.
template <class Method, class T, class Bias>
attention_call<widened_method<Method>, T, Bias> widened_call(attention_call<Method, T, Bias> const& call) {
  widened_codes<Method> const codes{call.shape};
  attention_call<widened_method<Method>, T, Bias> to{
      call.shape, call.options,       codes.operands(call.heads, call.widened),
      call.out,   call.query_lengths, call.key_lengths,
      call.sinks, call.bias};
  to.block_list = call.block_list;
  to.partials = call.partials;
  to.query_starts = call.query_starts;
  to.counters = call.counters;
  to.work_splits = call.work_splits;
  to.halves_of_values = call.halves_of_values;
  to.has_cleared_counters = call.has_cleared_counters;
  return to;
}

/// Enqueues attention over quantized operands by the portable programs; run() (exec/run.hpp) may have faster ones.
template <Executor Exec, class Method, class T, class Bias>
void run_portably(Exec const& exec, attention_call<Method, T, Bias> const& call) {
  int const channels = detail::channels_of_tiles(max(call.shape.channels, call.shape.channels_of_values()));
  auto const run_tiles = [&](auto of_program) {
    using program_type = attention_tiles<Method, T, bias_without_list<Bias>, of_program.value>;
    auto const program = detail::tiles_of<program_type>(call);
    exec.run(program, program.groups());
  };
  if constexpr (detail::mostly_runs_tiles<Exec>::value) {
    with_constant<64, 128, 256>(channels, run_tiles);
  } else {
    with_constant<64, 256>(channels, run_tiles);
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

/// How many values in fp16 the executor's program can use memory for.
template <Executor Exec, class Method>
std::int64_t count_of_halves(Exec const&, quantized_regions<Method> const&) {
  return 0;
}

/// Quantized attention. QK: the quantizer of queries and keys, with a granularity: symmetric_quantizer<8 or 4, ...>,
/// which may be two_to_a_byte, or scaled_float_quantizer<float8_e4m3, ...>; either may be smoothed. PV: the quantizer
/// of values, which may be smoothed, and of the softmax's weights, whose scale is fixed: float8_quantizer,
/// scaled_float_quantizer<float16> or symmetric_quantizer<8>. The portable program
/// multiplies codes of values as fp16, and those of queries and keys in 8-bit floats, too, before sm_89, where tensor
/// cores have none (tile/cuda/gemm_tile.cuh). sm_90's sums of them keep about 13 bits of mantissa
/// (tile/gemm_operand.hpp), and e4m3 codes have 4.
template <ScoreQuantizer QK, ScaleQuantizer PV, AttentionSoftmax<PV> Softmax = online_softmax<float>>
struct attention {
  static_assert(!is_smoothed_by<block_mean, PV>, "tessera: values are smoothed by the mean of all tokens");
  /// How operands are coded, for programs.
  using method = attention_method<QK, PV, Softmax>;
  /// The codes, scales and means of the operands.
  using heads = quantized_heads<method>;
  /// The regions of a workspace of plan_forward() or plan_quantize().
  using regions = quantization_regions<method>;

  /// The workspace of forward(). No option changes it.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, attention_shape const& shape,
                                     attention_options const& /*options*/ = {}) {
    return plan_of(exec, where, shape, {});
  }

  /// The workspace of quantize(), with room for the codes and scales of the options' parts, and for what forward() of
  /// these codes needs.
  template <Executor Exec>
  static workspace_plan plan_quantize(Exec const& exec, attention_shape const& shape,
                                      quantize_options const& options = {}) {
    return plan_of(exec, at_codes, shape, options.parts);
  }

  /// The codes and scales in a workspace of plan_forward(), or of plan_quantize() with the same extents and options.
  static heads operands(attention_shape const& shape, workspace const& space, quantize_options const& options = {}) {
    return regions(where, shape, options.parts).operands(space);
  }

  /// Memory for splits of the keys, in a workspace as for operands(); null where rows alone make enough groups.
  static attention_partials<typename Softmax::state_type> partials(attention_shape const& shape, workspace const& space,
                                                                   quantize_options const& options = {}) {
    return regions(where, shape, options.parts).partials(space);
  }

  /// Memory for counters of work items, in a workspace as for operands().
  static array_view<std::uint32_t> counters(attention_shape const& shape, workspace const& space,
                                            quantize_options const& options = {}) {
    return space[regions(where, shape, options.parts).counters];
  }

  /// Memory for work items that several groups share, in a workspace as for operands(), planned for the same executor;
  /// null where none is shared.
  template <Executor Exec>
  static array_view<float> work_splits(Exec const& exec, attention_shape const& shape, workspace const& space,
                                       quantize_options const& options = {}) {
    return work_splits(exec, regions(where, shape, options.parts, workspace_plan::record::sizes), space);
  }

  /// Memory for values in fp16, in a workspace as for operands(), planned for the same executor; null if the executor's
  /// programs do not use it.
  template <Executor Exec>
  static array_view<float16> halves_of_values(Exec const& exec, attention_shape const& shape, workspace const& space,
                                              quantize_options const& options = {}) {
    return halves_of_values(exec, regions(where, shape, options.parts, workspace_plan::record::sizes), space);
  }

  /// Memory for codes in bytes, in a workspace as for operands(), planned for the same executor; null unless the
  /// method's codes lie two to a byte and the executor's programs multiply bytes.
  template <Executor Exec>
  static array_view<std::byte> widened(Exec const& exec, attention_shape const& shape, workspace const& space,
                                       quantize_options const& options = {}) {
    regions const layout(where, shape, options.parts, workspace_plan::record::sizes);
    region<std::byte> const found = program_regions::of(exec, layout).widened;
    return found.count > 0 ? space[found] : array_view<std::byte>{};
  }

  /// Enqueues quantization and attention. Throws shape_error or value_error for arguments that do not fit together. T,
  /// Result: bfloat16, float16 or float. Functions: attention_functions. Results must not overlap inputs. Where the
  /// executor's program makes codes of queries itself (codes_queries()), the workspace has none of them afterwards, and
  /// where it multiplies bytes in place of pairs (widened()), it has no operands that operands() finds: quantize()
  /// makes codes to keep.
  template <Executor Exec, class T = bfloat16, class Result = T, class Functions = attention_functions<>>
  static void forward(Exec const& exec, attention_inputs<T> const& in, attention_options const& options,
                      attention_outputs<Result> const& out, workspace const& space, Functions const& functions = {}) {
    attention_shape const shape = checks::check_inputs(where, in);
    if constexpr (may_widen<Exec, method>) {
      if (widens(exec)) {  // makes codes in bytes at once, in the same workspace, which has room for both forms
        using in_bytes = attention<widened_quantizer<QK>, PV, Softmax>;
        return in_bytes::forward(exec, in, options, out, space, functions);
      }
    }
    regions const layout(where, shape, {}, workspace_plan::record::sizes);
    check_room(where, layout, space);
    heads quantized = layout.operands(space);
    if (out.log_sum_exp.data == nullptr && in.sinks.data == nullptr) {
      quantized.queries.mean_scores = {};
    }
    attention_call<method, Result, typename Functions::bias_type> call{
        shape,          options,  quantized,      out,           in.query_lengths,
        in.key_lengths, in.sinks, functions.bias, in.block_list, layout.partials(space),
        in.query_starts};
    call.counters = space[layout.counters];
    call.work_splits = work_splits(exec, layout, space);
    call.halves_of_values = halves_of_values(exec, layout, space);
    checks::check_call(where, call);
    checks::check_input_places(exec, where, in, space, functions);
    checks::check_call_places(exec, where, call);
    exec.clear(call.counters);  // first: between codes and attention it would keep their launches apart
    call.has_cleared_counters = true;
    attention_inputs<T> uncoded = in;
    if constexpr (std::is_same_v<T, Result> && std::is_same_v<Functions, attention_functions<>>) {
      if (codes_queries(exec, call, in.queries)) {
        call.queries = in.queries;
        call.query_factor = scale_of(shape, options.softmax_scale) * detail::log2_of_e;
        uncoded.queries = {};
      }
    }
    make_codes(exec, where, layout, uncoded, {options.softmax_scale, {}, options.keys_behind()}, quantized, space,
               functions);
    run(exec, call);
  }

  /// Enqueues the quantization of the inputs that are not null. Codes and scales go to `out`, which may lie in the same
  /// workspace, of plan_quantize() with the same options, or elsewhere. Queries without keys need the mean of keys in
  /// `out` if the method smooths keys, and the codes of keys in `out` if it smooths queries.
  template <Executor Exec, class T, class Functions = attention_functions<>>
  static void quantize(Exec const& exec, attention_shape const& shape, attention_inputs<T> const& in,
                       quantize_options const& options, heads const& out, workspace const& space,
                       Functions const& functions = {}) {
    constexpr char const* here = at_codes;
    checks::check_shape(here, shape);
    checks::check_heads(here, "queries", in.queries, shape.batch, shape.query_heads, shape.queries, shape.channels);
    checks::check_heads(here, "keys", in.keys, shape.batch, shape.key_heads, shape.keys, shape.channels);
    checks::check_heads(here, "values", in.values, shape.batch, shape.key_heads, shape.keys,
                        shape.channels_of_values());
    checks::check_lengths(here, shape, in.query_lengths, in.key_lengths);
    if (in.queries.data != nullptr && regions::smooths_keys) {
      check<value_error>(out.keys.mean.data != nullptr, here, ": queries need the mean of keys, which is null");
    }
    bool const needs_keys = in.queries.data != nullptr && regions::smooths_queries && in.keys.data == nullptr;
    if (needs_keys && shape.keys > 0) {
      check<value_error>(out.keys.codes.data != nullptr, here,
                         ": smoothed queries need keys or their codes, which are null");
    }
    checks::check_operands(here, shape, out, in.queries.data != nullptr, in.keys.data != nullptr || needs_keys,
                           in.values.data != nullptr);
    regions const layout(here, shape, options.parts, workspace_plan::record::sizes);
    check_room(here, layout, space);
    checks::check_input_places(exec, here, in, space, functions);
    check_reach(exec, here, "lengths of queries", in.query_lengths, "lengths of keys", in.key_lengths,
                "starts of queries", in.query_starts.first);
    checks::check_operand_places(exec, here, out);
    make_codes(exec, here, layout, in, options, out, space, functions);
  }

  /// Enqueues attention over operands that quantize() made.
  template <Executor Exec, class Result, class Bias>
  static void forward(Exec const& exec, attention_call<method, Result, Bias> const& call) {
    checks::check_shape(where, call.shape);
    checks::check_call(where, call);
    check<value_error>(call.queries.data == nullptr, where,
                       ": the call has queries without codes, which only attention.forward of inputs gives programs");
    checks::check_operands(where, call.shape, call.heads, true, true, true);
    if (regions::smooths_keys && (call.out.log_sum_exp.data != nullptr || call.sinks.data != nullptr)) {
      check<value_error>(call.heads.queries.mean_scores.data != nullptr || call.shape.queries == 0, where,
                         ": log-sum-exps and sinks need the scores of the mean key, which are null");
    }
    checks::check_operand_places(exec, where, call.heads);
    checks::check_call_places(exec, where, call);
    check_reach(exec, where, "rows of splits", call.partials.rows, "totals of splits", call.partials.totals, "counters",
                call.counters, "splits of work items", call.work_splits, "codes in bytes", call.widened,
                "values in fp16", call.halves_of_values);
    run(exec, call);
  }

  /// Refuses calls of forward() with arguments that it does not take, and says at compile time what it takes.
  template <class Exec, class In = anything, class Options = attention_options, class Out = anything, class... More>
  requires(!(MadeOrBraces<In, attention_inputs> && IsFirst<attention_options, Options> &&
             MadeOrBraces<Out, attention_outputs> &&
             IsFirst<workspace, More...>)) static void forward(Exec const&, In const&, Options const&, Out const&,
                                                               More const&...) {
    refuse<In>();
  }
  /// Refuses calls of forward() that give outputs before options, and says at compile time what it takes.
  template <class Exec, class In = anything, class Out = attention_outputs<bfloat16>, class... More>
  requires Made<Out, attention_outputs>
  static void forward(Exec const&, In const&, Out const&, attention_options const&, More const&...) { refuse<In>(); }
  /// Refuses calls of forward() with braces that hold other things, and says at compile time what it takes.
  template <class... None>
  static void forward(anything, anything, attention_options const&, anything, anything, anything = {}) {
    refuse<None...>();
  }

 private:
  using checks = detail::attention_checks<method>;

  template <class... Given>
  static void refuse() {
    static_assert(
        never<Given...>,
        "tessera: attention.forward takes an executor, attention_inputs<T>, attention_options, "
        "attention_outputs<Result>, a workspace of plan_forward(), and perhaps attention_functions; in braces "
        "without a type T and Result are bfloat16");
  }

  static constexpr char const* where = "attention.forward";
  static constexpr char const* at_codes = "attention.quantize";

  template <Executor Exec>
  static workspace_plan plan_of(Exec const& exec, char const* function, attention_shape const& shape,
                                quantized_parts const& parts) {
    checks::check_shape(function, shape);
    regions const layout(function, shape, parts);
    workspace_plan plan = layout.plan;
    static_cast<void>(program_regions(exec, layout, plan));
    return plan;
  }

  static void check_room(char const* function, regions const& layout, workspace const& space) {
    attention_shape const& s = layout.shape;
    space.check_room(function, layout.plan.bytes(), s.batch, " sequences of ", s.query_heads, " and ", s.key_heads,
                     " heads, ", s.queries, " queries and ", s.keys, " keys, of ", s.channels, " channels,");
  }

  /// The regions behind those of a layout, which depend on what programs the executor has.
  struct program_regions {
    region<float> splits;       ///< for work items that several groups share
    region<float16> halves;     ///< for values in fp16
    region<std::byte> widened;  ///< for codes in bytes, of methods whose codes lie two to a byte

    template <Executor Exec>
    program_regions(Exec const& exec, regions const& layout, workspace_plan& plan) {
      bool const attends = layout.parts.queries;
      splits = plan.template add<float>("splits of work items", attends ? floats_of_work_splits(exec, layout) : 0);
      halves = plan.template add<float16>("values in fp16", attends ? count_of_halves(exec, layout) : 0);
      if constexpr (has_pairs<method>) {
        std::int64_t bytes = 0;
        if constexpr (may_widen<Exec, method>) {
          bytes = attends && widens(exec) ? widened_codes<method>{layout.shape}.bytes() : 0;
        }
        widened = plan.template add<std::byte>("codes of queries and keys in bytes", bytes);
      }
    }
    /// Those of a layout that records sizes alone.
    template <Executor Exec>
    static program_regions of(Exec const& exec, regions const& layout) {
      workspace_plan plan = layout.plan;
      return program_regions(exec, layout, plan);
    }
  };

  template <Executor Exec>
  static array_view<float> work_splits(Exec const& exec, regions const& layout, workspace const& space) {
    region<float> const found = program_regions::of(exec, layout).splits;
    return found.count > 0 ? space[found] : array_view<float>{};
  }

  template <Executor Exec>
  static array_view<float16> halves_of_values(Exec const& exec, regions const& layout, workspace const& space) {
    region<float16> const found = program_regions::of(exec, layout).halves;
    return found.count > 0 ? space[found] : array_view<float16>{};
  }

  template <Executor Exec, class T, class Functions>
  static void make_codes(Exec const& exec, char const* function, regions const& layout, attention_inputs<T> const& in,
                         quantize_options const& options, heads const& out, workspace const& space,
                         Functions const& functions) {
    attention_shape const& shape = layout.shape;
    checks::check_starts(function, shape, in.query_starts, in.key_starts);
    check<value_error>(options.softmax_scale >= 0 && options.softmax_scale < infinity, function,
                       ": the scale of the softmax is ", options.softmax_scale, " but must be finite and not negative");
    check<value_error>(options.keys_behind >= -1, function, ": queries see ", options.keys_behind,
                       " keys after their own, which must not be below -1");
    using reading = decltype(functions.of_reading());
    quantize_call<method, T, reading> call{
        shape, scale_of(shape, options.softmax_scale), in, out, layout, space, functions.of_reading()};
    call.keys_behind = options.keys_behind;
    run(exec, call);
  }
  /// The factor of scores, natural.
  static float scale_of(attention_shape const& shape, float softmax_scale) {
    return softmax_scale > 0 ? softmax_scale : static_cast<float>(1.0 / ::sqrt(static_cast<double>(shape.channels)));
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/attention/attention.cuh>
#endif
