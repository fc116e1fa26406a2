// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The splits of the keys for decoding. `decode_regions` plans memory for as many splits as keep any machine busy.
/// `decode_partials` chooses how many of them a device uses: enough that all its thread blocks have work until the end,
/// but few enough that merging them is cheap.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tuning/attention/decode.hpp>

namespace tessera {
inline namespace v0 {

/// The number of splits into which the tokens of a sequence are divided. Each is for a group that takes `rows` rows of
/// the query heads of a key head: enough for any machine, but none of fewer than `least_tokens`. The number does not
/// depend on the machine, so that results do not depend on it either.
[[nodiscard]] inline std::int64_t decode_splits(char const* where, attention_shape const& s, std::int64_t rows = 16,
                                                std::int64_t least_tokens = 256) {
  constexpr std::int64_t enough_groups = 1024;
  constexpr std::int64_t most = most_attention_splits;
  check<shape_error>(s.key_heads >= 1 && s.query_heads >= s.key_heads, where, ": there are ", s.query_heads,
                     " query heads, which are no whole number for each of ", s.key_heads, " key heads");
  static_cast<void>(checked_multiply(where, s.batch, s.query_heads, s.queries, s.channels));
  std::int64_t const together = s.query_heads / s.key_heads * s.queries;
  std::int64_t const groups = s.batch * s.key_heads * divide_up(together, rows);
  std::int64_t const wanted = divide_up(enough_groups, max(groups, std::int64_t{1}));
  return clamp(min(wanted, s.keys / least_tokens), std::int64_t{1}, most);
}

/// The workspace of decoding: results of each split of the keys, which are merged afterwards.
struct decode_regions {
  /// The softmax's state of a row of scores.
  using state_type = online_softmax<float>::state_type;

  attention_shape shape;                   ///< the extents of the call
  std::int64_t splits;                     ///< splits of a row's keys, each for a group
  workspace_plan plan;                     ///< the plan of the regions below
  region<float> totals;                    ///< sums of weighted values of each split
  region<attention_row<state_type>> rows;  ///< states of the softmax of each split

  /// Regions for `among` splits of each row's keys.
  decode_regions(char const* where, attention_shape const& of, std::int64_t among)
      : shape(of),
        splits(among),
        plan(where),
        totals(plan.add<float>("totals of splits of rows", checked_multiply(where, split_rows(where), of.channels))),
        rows(plan.add<attention_row<state_type>>("splits of rows", split_rows(where))) {}
  /// Regions for as many splits as keep any machine busy; their number does not depend on the machine.
  decode_regions(char const* where, attention_shape const& of) : decode_regions(where, of, decode_splits(where, of)) {}

  /// Views of the splits' results; null if there is one split.
  [[nodiscard]] attention_partials<state_type> partials(workspace const& space) const {
    attention_shape const& s = shape;
    if (rows.count == 0) {
      return {};
    }
    return {{space[totals].data, {splits, s.batch, s.query_heads, s.queries, s.channels}},
            {space[rows].data, {splits, s.batch, s.query_heads, s.queries}}};
  }

 private:
  /// Rows of all splits; 0 if there is one split.
  [[nodiscard]] std::int64_t split_rows(char const* where) const {
    return splits == 1 ? 0 : checked_multiply(where, splits, shape.batch, shape.query_heads, shape.queries);
  }
};

/// The part of `memory` for the number of splits with the least cost; null for one split. `tokens`: how many keys a
/// thread block takes at a time; `blocks`: how many blocks run at a time; `rows`: how many rows of queries a block
/// takes.
template <class State>
[[nodiscard]] attention_partials<State> decode_partials(
    attention_shape const& s, attention_partials<State> const& memory, std::int64_t tokens, std::int64_t blocks,
    std::int64_t rows = 8, decode_split_policy const& policy = policy_of<decode_split_tuning>(900)) {
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
