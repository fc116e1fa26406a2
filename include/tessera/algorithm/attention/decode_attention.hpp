// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention of a few queries over many keys and values that are not quantized: split-KV decoding, over contiguous
/// heads or over blocks of tokens that a table numbers. It is the baseline for compressed caches
/// (algorithm/paged_cache/paged_cache.hpp).
///
///     auto const plan = tessera::decode_attention::plan_forward(exec, shape);
///     tessera::decode_attention_inputs<bfloat16> const inputs{queries, {keys, values, blocks, lengths}};
///     tessera::decode_attention::forward(exec, inputs, {.is_causal = true}, attention_outputs<bfloat16>{result},
///                                        tessera::workspace(plan, memory));
///
/// Scores, sums and weights are in fp32, and results depend on the program that runs, but not on the machine: explain()
/// says which program runs (exec/explain.hpp). No call waits or allocates.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/attention/decode_splits.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/attention/decode_dense.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// A call of attention of a few queries over the keys and values of a cache.
template <Scalar T, AttentionScalar Result>
struct decode_attention_call {
  using value_type = T;
  static constexpr char const* function = "decode_attention.forward";

  attention_shape shape;          ///< extents; a sequence has at most `keys` tokens
  decode_source<T> source;        ///< keys and values
  head_view<T const> queries;     ///< sequence x query head x query x channel
  float softmax_scale;            ///< what scores are multiplied by, usually 1 / sqrt(channels)
  bool is_causal;                 ///< whether a query sees no key after its own; the last query's own is the last key
  attention_outputs<Result> out;  ///< where results go
  attention_partials<online_softmax<float>::state_type> partials = {};  ///< memory for splits of the keys, or null
  /// Queries of each sequence; null: all are whole.
  sequence_lengths query_lengths = {};

  /// Whether there is nothing to do.
  [[nodiscard]] bool is_empty() const { return shape.batch * shape.queries == 0; }
};

/// The inputs of decode_attention. Channels of a key and of a value lie next to each other.
template <AttentionScalar T>
struct decode_attention_inputs {
  head_view<T const> queries;           ///< sequence x query head x query x channel
  decode_source<T> source;              ///< keys and values, where their blocks are, and lengths
  sequence_lengths query_lengths = {};  ///< queries of each sequence, where executors run; null: all are whole
};

namespace detail {

template <class T, class Result>
attention_writer<decode_method, Result> writer_of(decode_attention_call<T, Result> const& call) {
  return {call.shape, {}, {}, {}, call.query_lengths, {}, {}, call.out.result, call.out.log_sum_exp};
}

}  // namespace detail

/// Enqueues attention of a few queries by the portable programs; run() (exec/run.hpp) may have faster ones.
template <Executor Exec, class T, class Result>
void run_portably(Exec const& exec, decode_attention_call<T, Result> const& call) {
  decode_heads<T, Result> const program{
      call.source, call.queries, call.softmax_scale, call.is_causal, detail::writer_of(call), call.partials};
  exec.run(program, program.groups());
  if (call.partials.rows.data != nullptr) {
    merge_attention<decode_method, Result> const join{call.partials, detail::writer_of(call)};
    exec.run(join, join.groups());
  }
}

struct decode_attention {
  /// The workspace of forward(). `shape.keys` is the most tokens of a sequence. No option changes it.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const&, attention_shape const& shape,
                                     attention_options const& /*options*/ = {}) {
    check_shape(shape);
    return decode_regions(where, shape).plan;
  }

  /// Enqueues attention. Of the options, softmax_scale and is_causal may be set. Throws shape_error or value_error for
  /// arguments that do not fit together. Lists of lengths and blocks are read where the executor runs: lengths are cut
  /// to the tokens that there is room for, and block numbers are not checked.
  template <Executor Exec, class T, class Result = T>
  static void forward(Exec const& exec, decode_attention_inputs<T> const& in, attention_options const& options,
                      attention_outputs<Result> const& out, workspace const& space) {
    attention_shape const shape = check_inputs(in);
    check_options(options);
    check_outputs(shape, out);
    decode_regions const layout(where, shape);
    space.check_room(where, layout.plan.bytes(), shape.batch, " sequences of ", shape.query_heads, " heads, ",
                     shape.queries, " queries and ", shape.keys, " keys");
    check_reach(exec, where, "queries", in.queries, "keys", in.source.keys, "values", in.source.values, "blocks",
                in.source.blocks, "lengths of keys", in.source.lengths, "lengths of queries", in.query_lengths,
                "results", out.result, "log-sum-exps", out.log_sum_exp, "bytes of the workspace", space);
    double const plain = 1.0 / ::sqrt(static_cast<double>(shape.channels));
    float const scale = options.softmax_scale > 0 ? options.softmax_scale : static_cast<float>(plain);
    run(exec, decode_attention_call<T, Result>{shape, in.source, in.queries, scale, options.is_causal, out,
                                               layout.partials(space), in.query_lengths});
  }

 private:
  static constexpr char const* where = decode_attention_call<float, float>::function;

  static void check_shape(attention_shape const& s) {
    check<shape_error>(s.batch >= 0 && s.queries >= 0 && s.keys >= 0, where, ": there are ", s.batch, " sequences of ",
                       s.queries, " queries and ", s.keys, " keys but none must be negative");
    check<shape_error>(s.key_heads >= 1 && s.query_heads >= 1 && s.query_heads % s.key_heads == 0, where,
                       ": there are ", s.query_heads, " query heads, which are no whole number for each of ",
                       s.key_heads, " key heads");
    check<shape_error>(s.channels >= 1 && s.channels <= decode_heads<float, float>::most_channels, where,
                       ": heads have ", s.channels, " channels but must have from 1 to ",
                       decode_heads<float, float>::most_channels);
    detail::check_equal_channels(where, s);
  }

  template <class T, int Rank>
  static void check_extents(char const* what, view<T, Rank> found, std::int64_t const (&expected)[Rank]) {
    check_memory(where, what, found);
    for (int dimension = 0; dimension < Rank; ++dimension) {
      check<shape_error>(found.extent(dimension) == expected[dimension], where, ": dimension ", dimension, " of the ",
                         what, " has ", found.extent(dimension), " elements but needs ", expected[dimension]);
    }
  }

  template <class T>
  static attention_shape check_inputs(decode_attention_inputs<T> const& in) {
    head_view<T const> const& keys = in.source.keys;
    bool const has_blocks = in.source.blocks.data != nullptr;
    attention_shape const shape{
        in.queries.extent(0),
        in.queries.extent(1),
        keys.extent(1),
        in.queries.extent(2),
        has_blocks ? checked_multiply(where, in.source.blocks.extent(1), keys.extent(2)) : keys.extent(2),
        in.queries.extent(3)};
    check_shape(shape);
    check_memory(where, "queries", in.queries);
    check_extents("keys", keys,
                  {has_blocks ? keys.extent(0) : shape.batch, shape.key_heads, keys.extent(2), shape.channels});
    check_extents("values", in.source.values, {keys.extent(0), keys.extent(1), keys.extent(2), keys.extent(3)});
    check_channels(keys);
    check_channels(in.source.values);
    if (has_blocks) {
      check_extents("blocks", in.source.blocks, {shape.batch, in.source.blocks.extent(1)});
    }
    if (in.source.lengths.data != nullptr) {
      check_extents("lengths of keys", in.source.lengths, {shape.batch});
    }
    if (in.query_lengths.data != nullptr) {
      check_extents("lengths of queries", in.query_lengths, {shape.batch});
    }
    return shape;
  }

  template <class T>
  static void check_channels(head_view<T const> const& heads) {
    check<shape_error>(heads.is_empty() || heads.extent(3) < 2 || heads.stride(3) == 1, where,
                       ": channels have a stride of ", heads.stride(3), " but must have a stride of ", 1);
  }

  static void check_options(attention_options const& options) {
    check<value_error>(options.softmax_scale >= 0 && options.softmax_scale < infinity, where,
                       ": the scale of the softmax is ", options.softmax_scale, " but must be finite and not negative");
    check<value_error>(options.window_left < 0 && options.window_right < 0, where, ": there are windows of ",
                       options.window_left, " and ", options.window_right, " keys but decoding has none");
  }

  template <class Result>
  static void check_outputs(attention_shape const& s, attention_outputs<Result> const& out) {
    check_extents("result", out.result, {s.batch, s.query_heads, s.queries, s.channels});
    if (out.log_sum_exp.data != nullptr) {
      check_extents("log-sum-exps", out.log_sum_exp, {s.batch, s.query_heads, s.queries});
      check_apart(where, "log-sum-exps", out.log_sum_exp);
    }
    check_apart(where, "result", out.result);
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/attention/decode_attention.cuh>
#endif
