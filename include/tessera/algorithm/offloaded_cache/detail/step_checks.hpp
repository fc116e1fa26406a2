// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of the arguments of an offloaded cache's calls. They throw shape_error or value_error.
#pragma once

#include <cstdint>

#include <tessera/algorithm/offloaded_cache/offloaded_cache_types.hpp>
#include <tessera/concepts/chunk_selector.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/detail/given_chunks.hpp>
#include <tessera/select/given_chunks.hpp>
#include <tessera/view/chunk_lists.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A sequence of the batch.
inline void check_sequence(char const* here, offload_extents const& n, std::int64_t sequence) {
  check<value_error>(sequence >= 0 && sequence < n.batch, here, ": sequence ", sequence, " is asked for but there are ",
                     n.batch);
}

/// Heads of these extents, in memory.
template <class T>
void check_heads(char const* here, char const* what, view<T, 3> found, std::int64_t const (&expected)[3]) {
  for (int dimension = 0; dimension < 3; ++dimension) {
    check<shape_error>(found.extent(dimension) == expected[dimension], here, ": dimension ", dimension, " of the ",
                       what, " has ", found.extent(dimension), " elements but needs ", expected[dimension]);
  }
  check_memory(here, what, found);
}

/// Lists of chunks, where the selector takes them, and only there.
template <class T, ChunkSelector S>
void check_given(offload_extents const& n, S const& selector, offload_tokens<T> const& in) {
  constexpr char const* here = "offloaded_cache.decode";
  std::int64_t const steps = in.queries.extent(0);
  chunk_lists const& given = in.given;
  if constexpr (!takes_given_chunks<S>) {
    check<value_error>(given.chunks.data == nullptr && given.counts.data == nullptr, here, ": chunks are given for ",
                       given.chunks.extent(0), " steps but the selector chooses them; given_chunks takes them");
  } else {
    std::int64_t const expected[2] = {steps, n.key_heads};
    for (int dimension = 0; dimension < 2; ++dimension) {
      check<shape_error>(given.chunks.extent(dimension) == expected[dimension], here, ": dimension ", dimension,
                         " of the given chunks has ", given.chunks.extent(dimension), " elements but needs ",
                         expected[dimension]);
      check<shape_error>(given.counts.data == nullptr || given.counts.extent(dimension) == expected[dimension], here,
                         ": dimension ", dimension, " of the counts of given chunks has ",
                         given.counts.extent(dimension), " elements but needs ", expected[dimension]);
    }
    check<shape_error>(given.chunks.extent(2) <= selector.chunks, here, ": ", given.chunks.extent(2),
                       " chunks are given for a key head but the selector takes at most ", selector.chunks);
    check_memory(here, "given chunks", given.chunks);
    check_memory(here, "counts of given chunks", given.counts);
  }
}

/// The tokens and outputs of a step.
template <class T, class Result>
void check_step(offload_extents const& n, offload_tokens<T> const& in, offload_outputs<Result> const& out) {
  constexpr char const* here = "offloaded_cache.decode";
  std::int64_t const steps = in.queries.extent(0);
  check<shape_error>(steps <= n.batch, here, ": there are ", steps, " steps but ", n.batch, " sequences");
  check_heads(here, "queries", in.queries, {steps, n.query_heads, n.channels});
  check_heads(here, "keys", in.keys, {steps, n.key_heads, n.channels});
  check_heads(here, "values", in.values, {steps, n.key_heads, n.channels});
  check_heads(here, "results", out.result, {steps, n.query_heads, n.channels});
  check_memory(here, "numbers of sequences", in.sequences);
  check_memory(here, "log-sum-exps", out.log_sum_exp);
  check<shape_error>(in.sequences.data == nullptr || in.sequences.size() == steps, here, ": ", in.sequences.size(),
                     " sequences are named for ", steps, " steps");
  for (int dimension = 0; out.log_sum_exp.data != nullptr && dimension < 2; ++dimension) {
    std::int64_t const expected = dimension == 0 ? steps : n.query_heads;
    check<shape_error>(out.log_sum_exp.extent(dimension) == expected, here, ": dimension ", dimension,
                       " of the log-sum-exps has ", out.log_sum_exp.extent(dimension), " elements but needs ",
                       expected);
  }
}

/// Throws value_error where tokens or outputs of a step lie where the executor's programs do not read them.
template <class Exec, class T, class Result>
void check_step_places(Exec const& exec, offload_tokens<T> const& in, offload_outputs<Result> const& out,
                       workspace const& space) {
  constexpr char const* here = "offloaded_cache.decode";
  check_reach(exec, here, "queries", in.queries, "keys", in.keys, "values", in.values, "numbers of sequences",
              in.sequences, "given chunks", in.given.chunks, "counts of given chunks", in.given.counts);
  check_reach(exec, here, "results", out.result, "log-sum-exps", out.log_sum_exp, "bytes of the workspace", space);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
