// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `decode_partials`: chooses the number of splits of the keys for decoding: so many that all thread blocks of a device
/// have work until the end, at the least cost of merging splits.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/tuning/attention/decode.hpp>

namespace tessera {
inline namespace v0 {

/// Memory for the number of splits that costs least, at most as many as `memory` has room for; null for one split.
/// `tokens`: how many keys a thread block takes at a time; `blocks`: how many blocks run at a time; `rows`: how many
/// rows of queries a block takes.
template <class State>
[[nodiscard]] attention_partials<State> decode_partials(attention_shape const& s,
                                                        attention_partials<State> const& memory, std::int64_t tokens,
                                                        std::int64_t blocks, std::int64_t rows = 8) {
  constexpr decode_split_policy policy = policy_of<decode_split_tuning>(900);
  std::int64_t const work_items = s.batch * s.key_heads * divide_up(s.query_heads / s.key_heads * s.queries, rows);
  std::int64_t best = 1;
  std::int64_t least = 0;
  for (std::int64_t splits = 1; splits <= min(memory.splits(), std::int64_t{most_attention_splits}); ++splits) {
    std::int64_t const turns = divide_up(work_items * splits, blocks);
    std::int64_t const steps = divide_up(s.keys, tokens * splits);
    std::int64_t const cost = turns * (policy.step * steps + policy.work) + (splits > 1 ? policy.merging : 0);
    if (splits == 1 || cost < least) {
      best = splits;
      least = cost;
    }
  }
  if (best == 1) {
    return {};
  }
  attention_partials<State> taken = memory;
  taken.totals = memory.totals.slice(0, 0, best);
  taken.rows = memory.rows.slice(0, 0, best);
  return taken;
}

}  // namespace v0
}  // namespace tessera
