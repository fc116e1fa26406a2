// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The memory of a compressed cache: of one layer, or of two neighbouring ones that share pages. It is host or device
/// memory; offsets have 64 bits.
///
///     pages         block x key head x bytes of a page: those of a PageCodec; with a direction_codec format.bytes()
///     tail          slot x tail block x layer x key head x {key, value} x 64 x channels
///     rows          slot x key head x row_capacity x layer x {key, value} x channels    retained tokens, in order;
///                   pages number them from the first one of their slot and head
///     row_counts    slot x key head      rows that are taken
///     refused_rows  slot x key head      tokens that should have been retained when there was no row left
///     thresholds    slot x key head x {key, value}      angles; NaN: not known yet
///
/// A *block* of pages is what a block table numbers: page p of sequence i is in block blocks(i, p), for all key heads.
/// A *slot* is the memory that a sequence has for itself. Token n of a sequence is in page n / 64 if that is sealed,
/// else in row n % 64 of tail block n / 64 % tail_blocks. The tail has room for `window` tokens, for those of a page
/// that is not yet sealed, and for 64 more, which layers write before they seal it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/status.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/cache_sequences.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The contradiction between a sequence and its cache's memory or the call. Programs report such a sequence, and leave
/// it out, or the page whose block is impossible.
struct sequence_fault {
  status_code code = {};   ///< one of the codes of cached sequences; 0: there is no fault
  std::int64_t value = 0;  ///< the impossible number
  std::int64_t limit = 0;  ///< the number of slots or blocks; for other faults the largest possible number

  /// Whether there is no fault.
  [[nodiscard]] TESSERA_FN constexpr bool is_none() const { return code == status_code{}; }
  /// The detail for the status word.
  [[nodiscard]] TESSERA_FN constexpr status_detail detail() const { return {value, limit}; }
  /// Reports the fault of sequence number `sequence` of the batch, by the first lane.
  template <Group G>
  TESSERA_FN void report(G const& group, status_word* status, std::int64_t sequence) const {
    for (int lane : group) {
      if (is_first(lane) && !is_none()) {
        group.report(status, code, sequence, detail());
      }
    }
  }
};

/// Slot, tokens and pages of a sequence before and after a call.
struct sequence_extent {
  std::int64_t slot;    ///< the slot that its list names
  std::int64_t length;  ///< tokens after the call
  std::int64_t before;  ///< tokens before the call
  std::int64_t sealed;  ///< sealed pages before the call
  std::int64_t end;     ///< sealed pages after the call
};

/// The sealed pages of a sequence after `length` tokens; if there is a list, whatever the list says.
[[nodiscard]] TESSERA_FN constexpr std::int64_t sealed_pages(cache_sequences const& sequences, std::int64_t sequence,
                                                             std::int64_t length, std::int64_t window) {
  return sequences.pages.data == nullptr ? min(sealed_pages(length, window), sequences.blocks.extent(1))
                                         : sequences.pages[sequence];
}

/// The memory of a cache. T: bfloat16 or float16, the type of uncompressed keys and values.
template <class T>
struct cache_memory {
  using value_type = T;

  cache_page_format format;
  std::int64_t heads;           ///< key heads
  std::int64_t window;          ///< the fewest tokens in the tail of a long sequence; a multiple of 64
  std::int64_t row_capacity;    ///< rows for retained tokens of a head of a slot; 0: nothing is retained
  std::int64_t slot_count;      ///< the number of slots
  std::int64_t most_tokens;     ///< the most tokens of a sequence
  std::int64_t block_count;     ///< the number of blocks of pages
  std::byte* pages;             ///< block x key head
  T* tail;                      ///< slot x tail block x layer x key head x {key, value} x token x channel
  T* rows;                      ///< slot x key head x row x layer x {key, value} x channel
  std::uint32_t* row_counts;    ///< slot x key head
  std::uint32_t* refused_rows;  ///< slot x key head
  float* thresholds;            ///< slot x key head x {key, value}, in radians; NaN: not known yet

  /// The blocks of 64 tokens in the tail of a slot: the window, and tokens that are not sealed yet.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t tail_blocks() const { return window / cache_page_format::tokens + 2; }
  /// The tokens that the tail of a slot has room for.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t tail_tokens() const {
    return tail_blocks() * cache_page_format::tokens;
  }

  /// Whether the block exists, so that block tables may name it.
  [[nodiscard]] TESSERA_FN constexpr bool has_block(std::int64_t block) const {
    return block >= 0 && block < block_count;
  }
  /// Whether the slot exists.
  [[nodiscard]] TESSERA_FN constexpr bool has_slot(std::int64_t slot) const { return slot >= 0 && slot < slot_count; }
  /// The fault of a sequence that may have up to `most` tokens and up to `most_sealed` sealed pages.
  [[nodiscard]] TESSERA_FN constexpr sequence_fault fault_of(sequence_extent const& has, std::int64_t most,
                                                             std::int64_t most_sealed) const {
    if (has.length < 0 || has.length > most) {
      return {status_code::bad_length, has.length, most};
    }
    if (has.length == 0) {
      return {};
    }
    if (!has_slot(has.slot)) {
      return {status_code::bad_slot, has.slot, slot_count};
    }
    if (has.sealed < 0 || has.sealed > most_sealed) {
      return {status_code::bad_page_count, has.sealed, most_sealed};
    }
    std::int64_t const open =
        max(has.before - has.sealed * cache_page_format::tokens, has.length - has.end * cache_page_format::tokens);
    return open > tail_tokens() ? sequence_fault{status_code::full_tail, open, tail_tokens()} : sequence_fault{};
  }
  /// The fault of the block of a page.
  [[nodiscard]] TESSERA_FN constexpr sequence_fault fault_of_block(std::int64_t block) const {
    return has_block(block) ? sequence_fault{} : sequence_fault{status_code::bad_block, block, block_count};
  }
  /// The angle of keys or values from which on tokens of a head of a slot are retained.
  [[nodiscard]] TESSERA_FN constexpr float threshold(std::int64_t slot, std::int64_t head, int part) const {
    float const kept = thresholds[2 * head_of(slot, head) + part];
    return is_nan(kept) ? no_threshold : kept;
  }
  /// The first byte of a page of a direction_codec, whose bytes are those of the format.
  [[nodiscard]] TESSERA_FN constexpr std::byte* page(std::int64_t block, std::int64_t head) const {
    return pages + (block * heads + head) * format.bytes();
  }
  /// The first byte of a page of any PageCodec.
  template <class C>
  [[nodiscard]] TESSERA_FN constexpr std::byte* page_of(C const& codec, std::int64_t block, std::int64_t head) const {
    return pages + (block * heads + head) * codec.page_bytes(format);
  }
  /// The key or value of a token that is in the tail.
  [[nodiscard]] TESSERA_FN constexpr T* tail_row(std::int64_t slot, int layer, int part, std::int64_t head,
                                                 std::int64_t token) const {
    constexpr std::int64_t tokens = cache_page_format::tokens;
    std::int64_t const block = slot * tail_blocks() + token / tokens % tail_blocks();
    std::int64_t const list = ((block * format.layers + layer) * heads + head) * 2 + part;
    return tail + (list * tokens + token % tokens) * format.channels;
  }
  /// The elements from a row of a block of 64 tokens in the tail to that of the next block.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t tail_block_stride() const {
    return format.layers * heads * 2 * cache_page_format::tokens * format.channels;
  }
  /// The number of a head of a slot.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t head_of(std::int64_t slot, std::int64_t head) const {
    return slot * heads + head;
  }
  /// The key or value of a retained token; `row` counts from the first row of the slot and head, as headers of pages
  /// do.
  [[nodiscard]] TESSERA_FN constexpr T* retained_row(std::int64_t slot, std::int64_t head, std::int64_t row, int layer,
                                                     int part) const {
    std::int64_t const of_all = head_of(slot, head) * row_capacity + row;
    return rows + ((of_all * format.layers + layer) * 2 + part) * format.channels;
  }

  /// The bytes of `blocks` blocks of pages.
  [[nodiscard]] constexpr std::int64_t page_bytes(std::int64_t blocks) const { return blocks * heads * format.bytes(); }
  /// The elements of the tails of `slots` slots.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t tail_values(std::int64_t slots) const {
    return slots * tail_blocks() * format.layers * heads * 2 * cache_page_format::tokens * format.channels;
  }
  /// The elements of the retained tokens of `slots` slots.
  [[nodiscard]] constexpr std::int64_t row_values(std::int64_t slots) const {
    return slots * heads * row_capacity * format.layers * 2 * format.channels;
  }
};

/// The channels of a token, as they are stored.
template <class T>
struct stored_row {
  T const* first;       ///< channel 0
  std::int64_t stride;  ///< elements from channel to channel

  /// The element of a channel.
  [[nodiscard]] TESSERA_FN constexpr T operator[](std::int64_t channel) const { return first[channel * stride]; }
};

/// Eight neighbouring channels of a row, loaded by one access to memory if it is aligned to 16 bytes.
template <class T>
struct alignas(8 * sizeof(T)) row_chunk {
  static constexpr int channels = 8;

  T values[channels];  ///< the elements of the channels

  /// Loads piece `which` of a row.
  [[nodiscard]] TESSERA_FN static row_chunk of(stored_row<T> const& row, std::int64_t which) {
    T const* const from = row.first + channels * which * row.stride;
    if (row.stride == 1 && reinterpret_cast<std::uintptr_t>(from) % alignof(row_chunk) == 0) {
      return *reinterpret_cast<row_chunk const*>(from);
    }
    row_chunk made;
    for (int i = 0; i < channels; ++i) {
      made.values[i] = from[i * row.stride];
    }
    return made;
  }
  /// Writes piece `which` of a row whose channels are neighbours.
  TESSERA_FN void store_to(T* row, std::int64_t which) const {
    T* const to = row + channels * which;
    if (reinterpret_cast<std::uintptr_t>(to) % alignof(row_chunk) == 0) {
      *reinterpret_cast<row_chunk*>(to) = *this;
    } else {
      for (int i = 0; i < channels; ++i) {
        to[i] = values[i];
      }
    }
  }
};

/// The tokens of sequences, wherever they are: new ones in the inputs, earlier ones in the tail.
template <class T>
struct cache_source {
  cache_memory<T> memory;
  cache_inputs<T> inputs;  ///< null: all tokens are in the tail
  cache_sequences sequences;
  std::int64_t tokens;               ///< the tokens that the inputs have room for
  std::int64_t most_pages;           ///< the most pages of a sequence that are sealed at a time
  sequence_lengths new_tokens = {};  ///< new tokens of each sequence in the inputs; null: `tokens` of each
  status_word* status = nullptr;     ///< where impossible sequences and blocks are reported

  /// The fault of a sequence.
  [[nodiscard]] TESSERA_FN constexpr sequence_fault fault(std::int64_t sequence) const {
    std::int64_t const length = sequences.length(sequence);
    std::int64_t const fresh = new_tokens.data == nullptr ? tokens : std::int64_t{new_tokens[sequence]};
    std::int64_t const most = min(tokens, length);
    if (length > 0 && length <= memory.most_tokens && (fresh < 0 || fresh > most)) {
      return {status_code::bad_new_tokens, fresh, most};
    }
    std::int64_t const first = first_page(sequence);
    std::int64_t const complete = max(length - fresh, std::int64_t{0}) / cache_page_format::tokens;
    return memory.fault_of({sequences.slot(sequence), length, length - fresh, first, last_page(sequence, first)},
                           memory.most_tokens, min(complete, sequences.blocks.extent(1)));
  }
  /// The tokens of a sequence before the call.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t before(std::int64_t sequence) const {
    return max(sequences.length(sequence) - length_of(new_tokens, sequence, tokens), std::int64_t{0});
  }
  /// The tokens of a sequence after the call.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t after(std::int64_t sequence) const {
    return sequences.length(sequence);
  }
  /// The first page that is sealed in this call.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t first_page(std::int64_t sequence) const {
    return sealed_pages(sequences, sequence, before(sequence), memory.window);
  }
  /// The end of the pages that are sealed in this call; a sequence with a fault has none.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t end_page(std::int64_t sequence) const {
    std::int64_t const first = first_page(sequence);
    return end_page(sequence, first, fault(sequence));
  }
  /// The same, of a sequence whose first page and fault are known.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t end_page(std::int64_t sequence, std::int64_t first,
                                                           sequence_fault const& fault) const {
    return fault.is_none() ? last_page(sequence, first) : first;
  }
  /// The key or value of a token.
  [[nodiscard]] TESSERA_FN constexpr stored_row<T> stored_row_of(std::int64_t sequence, int layer, int part,
                                                                 std::int64_t head, std::int64_t token) const {
    std::int64_t const of_inputs = token - before(sequence);
    if (of_inputs < 0) {
      return {memory.tail_row(sequences.slot(sequence), layer, part, head, token), 1};
    }
    head_view<T const> const& from = inputs.part(layer, part);
    return {&from(sequence, head, of_inputs, 0), from.stride(3)};
  }
  /// The element of a channel of a token, as it is stored.
  [[nodiscard]] TESSERA_FN constexpr T stored(std::int64_t sequence, int layer, int part, std::int64_t head,
                                              std::int64_t token, std::int64_t channel) const {
    return token < before(sequence) ? memory.tail_row(sequences.slot(sequence), layer, part, head, token)[channel]
                                    : stored_input(sequence, layer, part, head, token, channel);
  }
  /// The element of a channel of a new token, as it is stored.
  [[nodiscard]] TESSERA_FN constexpr T stored_input(std::int64_t sequence, int layer, int part, std::int64_t head,
                                                    std::int64_t token, std::int64_t channel) const {
    return inputs.part(layer, part)(sequence, head, token - before(sequence), channel);
  }

 private:
  [[nodiscard]] TESSERA_FN constexpr std::int64_t last_page(std::int64_t sequence, std::int64_t first) const {
    std::int64_t const most = min(first + most_pages, sequences.blocks.extent(1));
    return max(first, min(sealed_pages(after(sequence), memory.window), most));
  }
};

}  // namespace v0
}  // namespace tessera
