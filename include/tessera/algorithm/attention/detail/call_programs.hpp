// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What programs are given by a call of attention over codes (attention_call, algorithm/attention/attention.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/executor.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/program/attention/detail/quantized_task.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/view/attention_block_list.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What writes the results of a call.
template <class Call>
attention_writer<typename Call::method, typename Call::value_type> writer_of(Call const& call) {
  auto const& heads = call.heads;
  return {call.shape, heads.queries.mean_scores, heads.values.scales, heads.values.mean,   call.query_lengths,
          call.sinks, call.query_starts,         call.out.result,     call.out.log_sum_exp};
}

/// The tiles that a call's queries see, by its bias or itself.
template <class Call>
attention_block_list list_of(Call const& call) {
  if constexpr (is_listed<decltype(Call::bias)>) {
    if (call.bias.list.counts.data != nullptr) {
      return call.bias.list;
    }
  }
  return call.block_list;
}

/// Enqueues the merging of splits of the keys, if the call has memory for splits.
template <Executor Exec, class Call>
void merge_splits(Exec const& exec, Call const& call) {
  if (call.partials.rows.data != nullptr) {
    merge_attention<typename Call::method, typename Call::value_type> const merge{call.partials, writer_of(call)};
    exec.run(merge, merge.groups());
  }
}

/// Whether an executor's calls mostly run by attention_tiles. One that has faster programs for most calls specialises
/// it, and has fewer widths of attention_tiles, each of which takes nvcc some seconds.
template <Executor Exec>
struct mostly_runs_tiles : std::true_type {};

/// The channels of the smallest program that takes so many, one of 64, 128 and 256.
constexpr int channels_of_tiles(std::int64_t channels) {
  return channels <= 64 ? 64 : channels <= 128 ? 128 : 256;
}

/// What programs are given by a call. Values: codes of values, or their numbers.
template <class Call, class StoredValue>
quantized_task<typename Call::method, typename Call::value_type, StoredValue> task_of(
    Call const& call, quantized_value_heads<StoredValue> const& values) {
  auto const& heads = call.heads;
  return {call.shape,
          heads.queries,
          heads.keys,
          values,
          call.query_lengths,
          call.key_lengths,
          call.options.window_left,
          call.options.keys_behind(),
          writer_of(call),
          call.partials};
}

/// The portable program for a call.
template <class P, class Call>
P tiles_of(Call const& call) {
  return {task_of(call, call.heads.values), list_of(call), without_list(call.bias)};
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
