// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The checks of arguments of a cross_layer_cache: each throws shape_error or value_error, which names the function and
/// shows both values.
///
///     detail::check_cache_sequences("cross_layer_cache.append", extents, sequences);
#pragma once

#include <cstdint>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/paged_cache/cache_layout.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/cache_sequences.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Checks that there are lists for all sequences of a call.
inline void check_cache_sequences(char const* where, cache_extents const& extents, cache_sequences const& s) {
  check<shape_error>(s.size() >= 0 && s.size() <= s.blocks.extent(0), where, ": there are ", s.size(),
                     " sequences but block tables of ", s.blocks.extent(0));
  check<value_error>(s.blocks.data != nullptr || s.blocks.extent(1) == 0 || s.size() == 0, where,
                     ": the block tables of ", s.size(), " sequences are null");
  check<shape_error>(s.slots.data != nullptr || s.size() <= extents.slots, where, ": there are ", s.size(),
                     " sequences but ", extents.slots, " slots");
  check<value_error>(s.lengths.data != nullptr || s.size() == 0, where, ": the lengths of ", s.size(),
                     " sequences are null");
  check_memory(where, "slots", s.slots);
  check_memory(where, "lengths", s.lengths);
  check_memory(where, "counts of sealed pages", s.pages);
  array_view<std::int32_t const> const lists[] = {s.slots, s.lengths, s.pages};
  for (array_view<std::int32_t const> const& list : lists) {
    check<shape_error>(list.data == nullptr || list.size() >= s.size(), where, ": a list of sequences has ",
                       list.size(), " elements but there are ", s.size());
  }
}

/// Checks also that the executor's programs read these lists.
template <class Exec>
void check_cache_sequences(Exec const& exec, char const* where, cache_extents const& extents,
                           cache_sequences const& s) {
  check_cache_sequences(where, extents, s);
  check_reach(exec, where, "block tables", s.blocks, "slots", s.slots, "lengths", s.lengths, "counts of sealed pages",
              s.pages);
}

/// Checks a list of a number for each sequence, if there is one: `what` it is of.
inline void check_sequence_list(char const* where, char const* what, array_view<std::int32_t const> list,
                                std::int64_t sequences) {
  check_memory(where, what, list);
  check<shape_error>(list.data == nullptr || list.size() >= sequences, where, ": there are ", list.size(), " ", what,
                     " but ", sequences, " sequences");
}

/// Checks the keys or values of `tokens` tokens of each sequence.
template <class U>
void check_cache_heads(char const* where, char const* what, cache_extents const& extents, head_view<U> found,
                       cache_sequences const& s, std::int64_t tokens) {
  std::int64_t const expected[4] = {s.size(), extents.heads, tokens, extents.channels};
  check<shape_error>(tokens >= 0, where, ": sequences bring ", tokens, " ", what, " but may not bring fewer than ", 0);
  check<value_error>(found.data != nullptr || s.size() * tokens == 0, where, ": the ", what, " are null");
  for (int dimension = 0; dimension < 4 && s.size() * tokens > 0; ++dimension) {
    check<shape_error>(found.extent(dimension) == expected[dimension], where, ": dimension ", dimension, " of the ",
                       what, " has ", found.extent(dimension), " elements but needs ", expected[dimension]);
  }
}

/// Checks queries, options and results of attention over a cache.
template <class T, class Result>
void check_cached_attention(char const* where, attention_shape const& shape, head_view<T const> queries,
                            attention_options const& options, attention_outputs<Result> const& out) {
  check<shape_error>(shape.query_heads >= 1 && shape.query_heads % shape.key_heads == 0, where, ": there are ",
                     shape.query_heads, " query heads, which are no whole number for each of ", shape.key_heads,
                     " key heads");
  std::int64_t const expected[4] = {shape.batch, shape.query_heads, shape.queries, shape.channels};
  check_memory(where, "queries", queries);
  check_memory(where, "results", out.result);
  check_memory(where, "log-sum-exps", out.log_sum_exp);
  for (int dimension = 0; dimension < 4; ++dimension) {
    check<shape_error>(queries.extent(dimension) == expected[dimension], where, ": dimension ", dimension,
                       " of the queries has ", queries.extent(dimension), " elements but needs ", expected[dimension]);
    check<shape_error>(out.result.extent(dimension) == expected[dimension], where, ": dimension ", dimension,
                       " of the result has ", out.result.extent(dimension), " elements but needs ",
                       expected[dimension]);
    check<shape_error>(
        out.log_sum_exp.data == nullptr || dimension == 3 || out.log_sum_exp.extent(dimension) == expected[dimension],
        where, ": dimension ", dimension, " of the log-sum-exps has ",
        dimension < 3 ? out.log_sum_exp.extent(dimension) : 0, " elements but needs ", expected[dimension]);
  }
  check<value_error>(options.softmax_scale >= 0 && options.softmax_scale < infinity, where,
                     ": the scale of the softmax is ", options.softmax_scale, " but must be finite and not negative");
  check<value_error>(options.window_left < 0 && options.window_right < 0, where, ": there are windows of ",
                     options.window_left, " and ", options.window_right, " keys but caches have none");
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
