// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cache_bytes`: the bytes that a compressed cache takes, counted by use.
///
///     tessera::cache_bytes const used = cache.wait_for_statistics(exec, sequences);
///     double const ratio = used.ratio();        // of what the same tokens take uncompressed, to all that is used
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_layout.hpp>
#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/core/check.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/view/cache_sequences.hpp>

namespace tessera {
inline namespace v0 {

struct cache_bytes {
  std::int64_t codes = 0;            ///< codes of keys and values
  std::int64_t scales = 0;           ///< parameters of codes, such as scales, minima and ratios
  std::int64_t norms = 0;            ///< lengths of keys and values, where they are not in the parameters
  std::int64_t headers = 0;          ///< headers of pages, which include masks of retained tokens
  std::int64_t retained = 0;         ///< keys and values of all layers of retained tokens
  std::int64_t tail = 0;             ///< tokens that are in no page yet
  std::int64_t bookkeeping = 0;      ///< counters and thresholds of slots; entries of block tables
  std::int64_t uncompressed = 0;     ///< what the same tokens take with 16 bits an element
  std::int64_t reserved = 0;         ///< all memory of the cache, used or not
  std::int64_t tokens = 0;           ///< tokens of all sequences
  std::int64_t retained_tokens = 0;  ///< retained tokens of all key heads and of all layers or pairs of layers
  /// Tokens of all key heads, and of all layers or pairs of layers, that were merged because there was no room to
  /// retain them.
  std::int64_t refused_tokens = 0;

  /// Bytes that are in use.
  [[nodiscard]] std::int64_t used() const { return codes + scales + norms + headers + retained + tail + bookkeeping; }
  /// The ratio of uncompressed bytes to used ones; 0 if none are used.
  [[nodiscard]] double ratio() const {
    return used() > 0 ? static_cast<double>(uncompressed) / static_cast<double>(used()) : 0.0;
  }
  /// Adds `count` pages of a head, with so many bytes each.
  void add_pages(page_byte_counts const& each, std::int64_t count) {
    codes += count * each.codes;
    scales += count * each.scales;
    norms += count * each.lengths;
    headers += count * each.header;
  }
  /// Adds `count` pages of a head, made by a direction_codec.
  void add_pages(cache_page_format const& format, std::int64_t count) {
    add_pages(direction_codec<>::counts(format), count);
  }
  /// A table for people to read.
  [[nodiscard]] std::string describe() const {
    return join("codes ", codes, ", scales ", scales, ", norms ", norms, ", headers ", headers, ", retained ", retained,
                ", tail ", tail, ", bookkeeping ", bookkeeping, ": ", used(), " bytes for ", uncompressed, " (", tokens,
                " tokens), of ", reserved, " reserved");
  }
};

namespace detail {

/// Copies a list from where executors run. Waits.
template <class U, Executor Exec>
std::vector<U> fetched(Exec const& exec, U const* data, std::int64_t count) {
  std::vector<U> list(static_cast<std::size_t>(count));
  exec.copy(array_view<U const>(data, count), array_view<U>(list.data(), count));
  exec.wait();
  return list;
}

/// Lengths, slots and page counts of sequences, copied to the host.
struct fetched_sequences {
  static constexpr std::int32_t no_slot = -1;  ///< the slot of a sequence of no tokens

  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> pages;

  /// Throws value_error for lengths, slots or counts that a cache cannot have.
  template <Executor Exec>
  fetched_sequences(char const* where, Exec const& exec, cache_sequences const& s, cache_extents const& e)
      : lengths(fetched(exec, s.lengths.data, s.size())) {
    cache_sequences unlisted = s;  // the host reads none of the lists, which lie where executors run
    unlisted.pages = {};
    for (std::int64_t i = 0; i < s.size(); ++i) {
      slots.push_back(static_cast<std::int32_t>(i));
      pages.push_back(
          static_cast<std::int32_t>(sealed_pages(unlisted, i, lengths[static_cast<std::size_t>(i)], e.window)));
    }
    if (s.slots.data != nullptr) {
      slots = fetched(exec, s.slots.data, s.size());
    }
    if (s.pages.data != nullptr) {
      pages = fetched(exec, s.pages.data, s.size());
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      check_one(where, i, s.blocks.extent(1), e);
    }
  }

 private:
  void check_one(char const* where, std::size_t i, std::int64_t table, cache_extents const& e) {
    check<value_error>(lengths[i] >= 0 && lengths[i] <= e.tokens, where, ": sequence ", i, " has ", lengths[i],
                       " tokens but may have ", e.tokens);
    if (lengths[i] == 0) {
      slots[i] = slots[i] >= 0 && slots[i] < e.slots ? slots[i] : no_slot;
      pages[i] = 0;
      return;
    }
    check<value_error>(slots[i] >= 0 && slots[i] < e.slots, where, ": slot ", slots[i], " of sequence ", i,
                       " is none of ", e.slots);
    std::int64_t const most = min(std::int64_t{lengths[i]} / cache_page_format::tokens, table);
    check<value_error>(pages[i] >= 0 && pages[i] <= most, where, ": sequence ", i, " has ", pages[i],
                       " sealed pages but may have ", most);
  }
};

/// The number of different blocks that the sequences use.
template <Executor Exec>
std::int64_t count_blocks(Exec const& exec, cache_sequences const& s, std::vector<std::int32_t> const& pages,
                          std::int64_t blocks) {
  std::vector<bool> is_used(static_cast<std::size_t>(blocks));
  std::int64_t count = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    for (std::int32_t block : fetched(exec, s.blocks[static_cast<std::int64_t>(i)].data, pages[i])) {
      check<value_error>(block >= 0 && block < blocks, "cache_bytes: block ", block, " is none of ", blocks);
      count += is_used[static_cast<std::size_t>(block)] ? 0 : 1;
      is_used[static_cast<std::size_t>(block)] = true;
    }
  }
  return count;
}

}  // namespace detail

/// Counts the bytes that sequences use in all parts of a cache. A page that several sequences share counts once;
/// retained tokens count in each slot. C: the codec of all pages. Waits.
template <Executor Exec, class T, PageCodec C = direction_codec<>>
cache_bytes count_cache_bytes(Exec const& exec, cache_extents const& extents, std::vector<cache_memory<T>> const& parts,
                              cache_sequences const& s, C codec = {}) {
  constexpr std::int64_t slot_bytes = 16;  // bytes of a head: two counters and two thresholds
  detail::fetched_sequences const known("cache_bytes", exec, s, extents);
  std::int64_t const blocks = detail::count_blocks(exec, s, known.pages, extents.blocks);
  cache_bytes found;
  std::int64_t open = 0;  // tokens in tails
  for (std::size_t i = 0; i < known.lengths.size(); ++i) {
    found.tokens += known.lengths[i];
    open += known.lengths[i] - known.pages[i] * std::int64_t{cache_page_format::tokens};
    found.bookkeeping += 4 * (known.pages[i] + 3);  // the block table; slot, length and count of pages
  }
  for (cache_memory<T> const& of : parts) {
    std::int64_t const row_bytes = 2 * of.format.layers * extents.channels * std::int64_t{sizeof(T)};
    found.add_pages(codec.counts(of.format), blocks * extents.heads);
    found.tail += open * extents.heads * row_bytes;
    found.uncompressed += found.tokens * extents.heads * row_bytes;
    found.bookkeeping += s.size() * extents.heads * slot_bytes;
    auto const taken = detail::fetched(exec, of.row_counts, extents.slots * extents.heads);
    auto const refused = detail::fetched(exec, of.refused_rows, extents.slots * extents.heads);
    for (std::int32_t slot : known.slots) {
      for (std::int64_t head = 0; head < extents.heads && slot != detail::fetched_sequences::no_slot; ++head) {
        auto const at = static_cast<std::size_t>(of.head_of(slot, head));
        found.retained_tokens += taken[at];
        found.retained += taken[at] * row_bytes;
        found.refused_tokens += refused[at];
      }
    }
  }
  return found;
}

}  // namespace v0
}  // namespace tessera
