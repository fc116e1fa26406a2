// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Writes the parts of pages other than codes: headers, and the rows of retained tokens. `finish_pages` writes them
/// where another program has written the codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// A page that is sealed in this call.
struct sealed_page {
  std::int64_t sequence;     ///< number of the sequence in the batch
  std::int64_t head;         ///< key head
  std::int64_t first_token;  ///< the page's first token, counted in the sequence
  page_mark mark;            ///< its retained tokens
  std::byte* page;           ///< its first byte
};

/// Writes the header of a page, by the first lane: its mark, and the thresholds of its sequence and head.
/// `offset(format)` is the byte of the page at which it begins.
template <Group G, class T, class Offset>
TESSERA_FN void write_page_header(G const& group, cache_source<T> const& source, sealed_page const& at,
                                  Offset const& offset) {
  for (int lane : group) {
    if (is_first(lane)) {
      cache_memory<T> const& memory = source.memory;
      std::int64_t const slot = source.sequences.slot(at.sequence);
      *reinterpret_cast<cache_page_header*>(at.page + offset(memory.format)) = {
          at.mark.retained,
          at.mark.first_row,
          at.mark.rows,
          memory.threshold(slot, at.head, key_part),
          memory.threshold(slot, at.head, value_part),
          {0, 0}};
    }
  }
}

/// The byte at which headers of pages of program/paged_cache/page_format.hpp begin.
struct header_in_format {
  /// The header of a page of this format.
  TESSERA_FN constexpr int operator()(cache_page_format const& format) const { return format.header(); }
};

/// Copies the retained tokens of a page. The group has `Lanes` lanes.
template <int Lanes, Group G, class T>
TESSERA_FN void retain_tokens(G const& group, cache_source<T> const& source, sealed_page const& at) {
  int const pieces = source.memory.format.channels / row_chunk<T>::channels;
  std::int64_t const slot = source.sequences.slot(at.sequence);
  std::int64_t row = at.mark.first_row;
  for (std::uint64_t left = at.mark.retained; left != 0; left &= left - 1) {
    std::int64_t const token = at.first_token + count_trailing_zeros(left);
    for (int lane : group) {
      for (int i = lane; i < 2 * source.memory.format.layers * pieces; i += Lanes) {
        int const layer = i / pieces / 2;
        int const part = i / pieces % 2;
        auto const piece = row_chunk<T>::of(source.stored_row_of(at.sequence, layer, part, at.head, token), i % pieces);
        piece.store_to(source.memory.retained_row(slot, at.head, row, layer, part), i % pieces);
      }
    }
    ++row;
  }
}

/// Writes headers and retained tokens. A group takes the page of a head.
template <class T>
struct finish_pages {
  static constexpr int lanes = 32;
  struct scratch_type {};

  cache_source<T> source;
  view<page_mark const, 3> marks;  ///< sequence x page sealed in this call x head

  TESSERA_FN constexpr std::int64_t groups() const { return marks.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which % marks.extent(2);
    std::int64_t const i = which / marks.extent(2) % marks.extent(1);
    std::int64_t const sequence = which / marks.extent(2) / marks.extent(1);
    std::int64_t const page = source.first_page(sequence) + i;
    if (page >= source.end_page(sequence)) {
      return;
    }
    std::int64_t const block = source.sequences.blocks(sequence, page);
    if (source.memory.has_block(block)) {  // other blocks were reported by the program that wrote the codes
      sealed_page const at{sequence, head, page * cache_page_format::tokens, marks(sequence, i, head),
                           source.memory.page(block, head)};
      write_page_header(group, source, at, header_in_format{});
      retain_tokens<lanes>(group, source, at);
    }
  }
};

}  // namespace v0
}  // namespace tessera
