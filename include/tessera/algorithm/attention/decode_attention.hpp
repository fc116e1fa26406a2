// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention of a few queries over many keys and values that are not quantized: split-KV decoding, over contiguous
/// heads or over blocks of tokens that a table numbers. It is the baseline for compressed caches
/// (algorithm/paged_cache/paged_cache.hpp).
///
///     cached_attention_regions const regions("decode", shape);                 // of paged_cache.hpp: splits of rows
///     decode_attention_call<bfloat16, bfloat16> call{shape, {keys, values, blocks, lengths}, queries, scale, true,
///                                                    {result}, regions.partials(space)};
///     run(exec, call);                                                         // enqueues; nothing waits
#pragma once

#include <cstdint>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/attention/decode_dense.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>

namespace tessera {
inline namespace v0 {

/// A call of attention of a few queries over the keys and values of a cache.
template <Scalar T, AttentionScalar Result>
struct decode_attention_call {
  using value_type = T;
  static constexpr char const* function = "decode_attention";

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

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/attention/decode_attention.cuh>
#endif
