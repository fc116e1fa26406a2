// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cache_append_call`: new tokens for a compressed cache, and the portable programs that append them.
/// run() enqueues the call, see algorithm/paged_cache/paged_cache.hpp.
#pragma once

#include <cstdint>

#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/merger.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/program/paged_cache/retain_tokens.hpp>
#include <tessera/program/paged_cache/write_pages.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The workspace of an append of at most `tokens` new tokens to each of `sequences` sequences.
struct cache_append_regions {
  std::int64_t sequences;   ///< the number of sequences of the call
  std::int64_t pages;       ///< the most pages of new tokens of a sequence
  std::int64_t heads;       ///< the number of key heads
  workspace_plan plan;      ///< the plan of the regions below
  region<merged_row> rows;  ///< one row for each key and value of the pages to be sealed
  region<page_mark> marks;  ///< the retained tokens of each page to be sealed

  /// Throws shape_error for extents whose product overflows.
  cache_append_regions(char const* where, std::int64_t sequence_count, std::int64_t tokens, std::int64_t head_count)
      : sequences(sequence_count),
        pages(divide_up(tokens, std::int64_t{cache_page_format::tokens})),
        heads(head_count),
        plan(where),
        rows(plan.add<merged_row>("pairs of keys and values",
                                  checked_multiply(where, page_heads(where), 2 * cache_page_format::tokens))),
        marks(plan.add<page_mark>("marks of pages", page_heads(where))) {}

  /// The extents are sequences x pages x heads x (keys, values) x tokens.
  [[nodiscard]] view<merged_row, 5> rows_in(workspace const& space) const {
    return {space[rows].data, {sequences, pages, heads, 2, cache_page_format::tokens}};
  }
  /// The extents are sequences x pages x heads.
  [[nodiscard]] view<page_mark, 3> marks_in(workspace const& space) const {
    return {space[marks].data, {sequences, pages, heads}};
  }

 private:
  [[nodiscard]] std::int64_t page_heads(char const* where) const {
    return checked_multiply(where, checked_multiply(where, sequences, pages), heads);
  }
};

/// New tokens for a cache. M merges pairs of vectors; in a layer that is in no pair it makes directions and lengths. C
/// writes pages.
template <Merger M, class T, PageCodec C = direction_codec<>>
struct cache_append_call {
  static constexpr char const* function = "cross_layer_cache.append";
  /// How pairs of vectors are merged.
  using merger_type = M;
  using value_type = T;
  /// How pages are coded.
  using codec_type = C;

  M merger;                    ///< merges pairs of vectors
  retain_most_different rule;  ///< the rule by which tokens are retained
  bool whole_tokens;           ///< whether a vector is that of all heads of a token together
  cache_source<T> source;      ///< the new tokens; without inputs, pages that are complete in the tail are sealed
  view<merged_row, 5> rows;    ///< memory; see cache_append_regions::rows_in()
  view<page_mark, 3> marks;    ///< memory; see cache_append_regions::marks_in()
  C codec = {};                ///< writes pages
};

namespace detail {

/// Enqueues the writing of pages by the call's codec. Call: a cache_append_call.
template <int Channels, Executor Exec, class Call>
void encode_cache_pages(Exec const& exec, Call const& call) {
  pages_to_write<typename Call::value_type> const pages{call.source, call.rows, call.marks};
  auto const program = call.codec.template writer<Channels>(pages);
  exec.run(program, program.groups());
}

/// Enqueues the last pass, which is the same for all programs that make pages.
template <Executor Exec, Merger M, class T, PageCodec C>
void keep_new_tokens(Exec const& exec, cache_append_call<M, T, C> const& call) {
  if (call.source.tokens > 0) {
    keep_tail<T> const keep{call.source, true};
    exec.run(keep, keep.groups());
  }
}

/// Enqueues the marking of retained tokens, after thresholds are known. Call: a cache_append_call.
template <Executor Exec, class Call, class Row>
void mark_tokens(Exec const& exec, Call const& call, view<Row const, 5> rows) {
  using T = typename Call::value_type;
  find_apart<T, Row> const find{call.source, rows, call.marks};
  exec.run(find, find.groups());
  mark_rows<T> const mark{call.source, call.marks};
  exec.run(mark, mark.groups());
}

/// The call with a status word: its own, or the executor's if it has none.
template <Executor Exec, Merger M, class T, PageCodec C>
cache_append_call<M, T, C> reporting(Exec const& exec, cache_append_call<M, T, C> call) {
  call.source.status = call.source.status != nullptr ? call.source.status : exec.status();
  return call;
}

template <Executor Exec, Merger M, class T, PageCodec C>
void append_portably(Exec const& exec, cache_append_call<M, T, C> const& given) {
  auto const call = reporting(exec, given);
  if (!call.marks.is_empty()) {
    measure_pages<M, T> const measure{call.merger, call.source, call.rows, call.whole_tokens};
    exec.run(measure, measure.groups());
    fit_thresholds<T> const fit{call.rule, call.source, call.rows};
    exec.run(fit, fit.groups());
    mark_tokens(exec, call, view<merged_row const, 5>(call.rows));
    if (call.source.memory.format.channels <= 128) {
      encode_cache_pages<128>(exec, call);
    } else {
      encode_cache_pages<256>(exec, call);
    }
  }
  keep_new_tokens(exec, call);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
