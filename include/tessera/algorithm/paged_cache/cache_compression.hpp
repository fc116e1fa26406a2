// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compress_in_one_pass`: appends tokens by a program that reads keys and values once
/// (program/paged_cache/write_pages.cuh). Later passes use the results of the first: where tokens can be retained,
/// marks follow from the angles of all pages, and pages whose retained tokens were guessed wrong are made again.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/algorithm/paged_cache/cache_append.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/merger.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/finish_pages.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/program/paged_cache/retain_tokens.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What the first pass leaves for the later ones, in the memory that the portable programs use for rows. All null where
/// there are no later passes.
template <class T>
struct compression_notes {
  bool needs_marks;   ///< whether tokens can be retained
  bool needs_angles;  ///< whether tokens can be retained or thresholds follow from angles
  view<float, 5> angles;
  view<std::uint64_t, 3> guesses;

  template <Merger M, PageCodec C>
  static compression_notes of(cache_append_call<M, T, C> const& call) {
    constexpr int tokens = cache_page_format::tokens;
    bool const needs_marks = call.source.memory.row_capacity > 0;
    if (!needs_marks && !call.rule.needs_angles()) {
      return {};
    }
    auto* const memory = reinterpret_cast<std::byte*>(call.rows.data);
    std::int64_t const angle_bytes = call.marks.size() * 2 * tokens * static_cast<std::int64_t>(sizeof(float));
    std::int64_t const extents[3] = {call.marks.extent(0), call.marks.extent(1), call.marks.extent(2)};
    return {needs_marks,
            true,
            {reinterpret_cast<float*>(memory), {extents[0], extents[1], extents[2], 2, tokens}},
            {reinterpret_cast<std::uint64_t*>(memory + angle_bytes), {extents[0], extents[1], extents[2]}}};
  }
  static_assert(sizeof(merged_row) * 2 * cache_page_format::tokens >=
                sizeof(float) * 2 * cache_page_format::tokens + sizeof(std::uint64_t));
};

/// The counter of pages that blocks have taken, in memory behind the notes. Null where there are so few pages that each
/// block knows its own, since the counter has to be cleared first.
template <Merger M, class T, PageCodec C>
std::uint32_t* count_of_pages(cache_append_call<M, T, C> const& call, std::int64_t blocks) {
  constexpr int turns = 2;  // turns of a block
  constexpr std::int64_t of_notes = sizeof(float) * 2 * cache_page_format::tokens + sizeof(std::uint64_t);
  static_assert(sizeof(merged_row) * 2 * cache_page_format::tokens >= of_notes + sizeof(std::uint32_t));
  auto* const memory = reinterpret_cast<std::byte*>(call.rows.data) + call.marks.size() * of_notes;
  return call.marks.size() > turns * blocks ? reinterpret_cast<std::uint32_t*>(memory) : nullptr;
}

/// Enqueues an append in one pass, and the passes that follow from it. Kernel: compress_pages or one that does the
/// same. Call: a cache_append_call. `resident`: thread blocks that run at a time.
template <class Kernel, Executor Exec, class Call>
void compress_in_one_pass(Exec const& exec, Call const& call, std::int64_t resident) {
  using T = typename Call::value_type;
  auto const notes = compression_notes<T>::of(call);
  std::int64_t const blocks = min(call.marks.size(), resident);
  Kernel program{call.merger, {call.source, call.rule, call.marks, notes.angles, notes.guesses, false}};
  if constexpr (requires { program.rows.taken; }) {
    program.rows.taken = count_of_pages(call, blocks);
    if (program.rows.taken != nullptr) {
      exec.clear(array_view<std::uint32_t>(program.rows.taken, 1));
    }
  }
  exec.run(program, blocks);
  if (!notes.needs_angles) {
    return;
  }
  fit_thresholds<T, float> const fit{call.rule, call.source, notes.angles};
  exec.run(fit, fit.groups());
  mark_tokens(exec, call, view<float const, 5>(notes.angles));
  finish_pages<T> const finish{call.source, call.marks};
  exec.run(finish, finish.groups());
  if (notes.needs_marks) {
    program.rows.corrects = true;
    if constexpr (requires { program.rows.taken; }) {
      program.rows.taken = nullptr;
    }
    exec.run(program, blocks);
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
