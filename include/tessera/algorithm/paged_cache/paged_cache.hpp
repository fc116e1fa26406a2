// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operations on a compressed cache over the caller's memory: append, attend, restore.
/// algorithm/paged_cache/cross_layer_cache.hpp uses these operations. run() (exec/run.hpp) enqueues cache_append_call,
/// cached_attention_call and cache_restore_call by the fastest program that the executor has, which explain() names
/// (exec/explain.hpp).
///
/// Formats: program/paged_cache/page_format.hpp, program/paged_cache/cache_memory.hpp. The bytes that an append writes
/// are the same on every executor. They are also the same whether tokens are appended one by one or many at a time,
/// once thresholds are set (minicache.hpp has details). Nothing waits or allocates: lengths are in memory of the
/// executor, so that a call can be captured in a CUDA graph and replayed. Impossible lengths, slots and blocks are
/// reported to the executor, and the sequences or pages concerned are left out.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp
#include <type_traits>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/attention/decode_splits.hpp>
#include <tessera/algorithm/paged_cache/cache_append.hpp>
#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/merger.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/status.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/program/paged_cache/attend_pages.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/restore_pages.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/view/cache_sequences.hpp>

namespace tessera {
inline namespace v0 {

/// A call of attention: queries over the keys and values of a cache, whose pages C reads.
template <class T, class Result, PageCodec C = direction_codec<>>
struct cached_attention_call {
  static constexpr char const* function = "cross_layer_cache.attend";
  using value_type = T;
  /// The type of results.
  using result_type = Result;
  /// How pages are coded.
  using codec_type = C;

  attention_shape shape;          ///< extents; `keys` is the most tokens of a sequence
  cache_memory<T> memory;         ///< the memory of the part that holds the layer
  cache_sequences sequences;      ///< lengths, slots and block tables
  int layer;                      ///< which layer of the part: 0 or 1
  head_view<T const> queries;     ///< sequences x query heads x queries x channels
  float softmax_scale;            ///< the factor of scores
  bool is_causal;                 ///< whether queries see no later keys
  attention_outputs<Result> out;  ///< the results
  attention_partials<online_softmax<float>::state_type> partials = {};  ///< memory for splits of the keys, or null
  /// Queries of each sequence; null: all sequences have as many as the view.
  sequence_lengths query_lengths = {};
  status_word* status = nullptr;  ///< where impossible sequences are reported; null: the executor's status word
  C codec = {};                   ///< reads pages

  /// Whether there is nothing to do.
  [[nodiscard]] bool is_empty() const { return shape.batch * shape.queries == 0; }
};

/// A call that restores the keys and values of one layer of a cache, whose pages C reads, to 16 or 32 bits.
template <class T, class Result, PageCodec C = direction_codec<>>
struct cache_restore_call {
  static constexpr char const* function = "cross_layer_cache.restore";

  cache_memory<T> memory;         ///< the memory of the part that holds the layer
  cache_sequences sequences;      ///< lengths, slots and block tables
  int layer;                      ///< which layer of the part: 0 or 1
  head_view<Result> keys;         ///< sequences x heads x tokens x channels
  head_view<Result> values;       ///< sequences x heads x tokens x channels
  status_word* status = nullptr;  ///< where impossible sequences are reported; null: the executor's status word
  C codec = {};                   ///< reads pages
};

namespace detail {

/// The status word to which the programs of a call report.
template <Executor Exec, class Call>
status_word* status_for(Exec const& exec, Call const& call) {
  return call.status != nullptr ? call.status : exec.status();
}

template <class T, class Result, PageCodec C>
attention_writer<decode_method, Result> writer_of(cached_attention_call<T, Result, C> const& call) {
  return {call.shape, {}, {}, {}, call.query_lengths, {}, {}, call.out.result, call.out.log_sum_exp};
}

/// Call: a cached_attention_call.
template <int Channels, Executor Exec, class Call>
void attend_cache(Exec const& exec, Call const& call) {
  using T = typename Call::value_type;
  using Result = typename Call::result_type;
  cached_attention<T, Result, Channels, shared_codec_t<typename Call::codec_type>> const program{
      call.memory,    call.sequences,  call.layer,    call.queries,           call.softmax_scale,
      call.is_causal, writer_of(call), call.partials, status_for(exec, call), call.codec.shared()};
  exec.run(program, program.groups());
  if (call.partials.rows.data != nullptr) {
    merge_attention<decode_method, Result> const join{call.partials, writer_of(call)};
    exec.run(join, join.groups());
  }
}

}  // namespace detail

/// Enqueues an append of new tokens by the portable programs; run() (exec/run.hpp) may have faster ones.
template <Executor Exec, Merger M, class T, PageCodec C>
void run_portably(Exec const& exec, cache_append_call<M, T, C> const& call) {
  detail::append_portably(exec, call);
}

/// Enqueues attention over a cache by the portable program; run() (exec/run.hpp) may have a faster one.
template <Executor Exec, class T, class Result, PageCodec C>
void run_portably(Exec const& exec, cached_attention_call<T, Result, C> const& call) {
  if (call.memory.format.channels <= 128) {
    detail::attend_cache<128>(exec, call);
  } else {
    detail::attend_cache<256>(exec, call);
  }
}

/// Enqueues the restoring of keys and values.
template <Executor Exec, class T, class Result, PageCodec C>
void run_portably(Exec const& exec, cache_restore_call<T, Result, C> const& call) {
  restore_pages<T, Result, C> const program{
      call.memory, call.sequences, call.layer, call.keys, call.values, detail::status_for(exec, call), call.codec};
  exec.run(program, program.groups());
}

/// The number of splits into which the tokens of a sequence are divided. Each is for a group, and has at least four
/// pages.
[[nodiscard]] inline std::int64_t cached_attention_splits(attention_shape const& s) {
  return decode_splits("cross_layer_cache.attend", s, cached_attention_rows, 4 * cache_page_format::tokens);
}

/// The workspace of attention over a cache.
struct cached_attention_regions : decode_regions {
  using decode_regions::decode_regions;
  /// Regions for as many splits as keep any machine busy; their number does not depend on the machine.
  cached_attention_regions(char const* where, attention_shape const& of)
      : decode_regions(where, of, cached_attention_splits(of)) {}
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/paged_cache/paged_cache.cuh>
#endif
