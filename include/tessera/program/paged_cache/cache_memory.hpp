// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Where a compressed cache lies: of one layer, or of two neighbouring ones that share pages. Host or device memory;
/// offsets have 64 bits.
///
///     pages         block x key head x format.bytes()                            program/paged_cache/page_format.hpp
///     tail          slot x tail block x layer x key head x {key, value} x 64 x channels
///     rows          slot x key head x row_capacity x layer x {key, value} x channels    retained tokens, in order;
///                   pages number them from the first one of their slot and head
///     row_counts    slot x key head      rows that are taken
///     refused_rows  slot x key head      tokens that should have been retained when there was no row left
///     thresholds    slot x key head x {key, value}      angles; NaN: not known yet
///
/// A *block* of pages is what a block table numbers: page p of sequence i is in block blocks(i, p), for all key heads.
/// A *slot* is what a sequence has for itself. Token n of a sequence is in page n / 64 if that is sealed, else in row n
/// % 64 of tail block n / 64 % tail_blocks. The tail has room for `window` tokens, for those of a page that is not yet
/// sealed, and for 64 more, which layers write before it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/status.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Keys or values.
inline constexpr int key_part = 0;
/// Values, in lists of keys and values.
inline constexpr int value_part = 1;

/// What of a sequence contradicts its cache's memory or the call. Programs report such a sequence and leave it out, or
/// the page whose block it is.
struct sequence_fault {
  status_code code = {};   ///< one of those of cached sequences; 0: nothing is wrong
  std::int64_t value = 0;  ///< the number that cannot be
  std::int64_t limit = 0;  ///< how many slots or blocks there are; else the largest number that can be

  /// Whether nothing is wrong.
  [[nodiscard]] TESSERA_FN constexpr bool is_none() const { return code == status_code{}; }
  /// For the status word.
  [[nodiscard]] TESSERA_FN constexpr status_detail detail() const { return {value, limit}; }
  /// The first lane says so of sequence number `sequence` of the batch.
  template <class Group>
  TESSERA_FN void report(Group const& group, status_word* status, std::int64_t sequence) const {
    for (int lane : group) {
      if (is_first(lane) && !is_none()) {
        group.report(status, code, sequence, detail());
      }
    }
  }
};

/// What is known of a sequence before and after a call.
struct sequence_extent {
  std::int64_t slot;    ///< as its list says
  std::int64_t length;  ///< tokens after the call
  std::int64_t before;  ///< tokens before it
  std::int64_t sealed;  ///< pages before it
  std::int64_t end;     ///< pages after it
};

/// Sequences of a batch. One of no tokens is left out of all calls: its slot, pages and blocks may be anything.
struct cache_sequences {
  static constexpr std::int64_t all = -1;  ///< as a count: as many as there are block tables

  matrix_view<std::int32_t const> blocks;       ///< sequence x page: its block
  array_view<std::int32_t const> slots = {};    ///< of each sequence; null: its own number
  array_view<std::int32_t const> lengths = {};  ///< tokens of each, with those that a call brings; null: none
  array_view<std::int32_t const> pages = {};    ///< sealed ones of each; null: as many as can be
  std::int64_t count = all;                     ///< sequences of the batch

  /// How many sequences there are.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t size() const { return count == all ? blocks.extent(0) : count; }
  /// The slot of a sequence.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t slot(std::int64_t sequence) const {
    return slots.data == nullptr ? sequence : slots[sequence];
  }
  /// Tokens of a sequence, with those that the call brings.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t length(std::int64_t sequence) const {
    return lengths.data == nullptr ? 0 : lengths[sequence];
  }
  /// Sealed pages of a sequence of which `length_then` tokens have been there; a list may say anything.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t sealed(std::int64_t sequence, std::int64_t length_then,
                                                         std::int64_t window) const {
    return pages.data == nullptr ? min(sealed_pages(length_then, window), blocks.extent(1)) : pages[sequence];
  }
};

/// T: bfloat16 or float16, of what is kept as it was.
template <class T>
struct cache_memory {
  using value_type = T;

  cache_page_format format;
  std::int64_t heads;           ///< of keys
  std::int64_t window;          ///< tokens of a sequence that are at least in its tail; a multiple of 64
  std::int64_t row_capacity;    ///< of a head of a slot; 0: nothing is retained
  std::int64_t slot_count;      ///< slots that there are
  std::int64_t most_tokens;     ///< of a sequence
  std::int64_t block_count;     ///< blocks of pages that there are
  std::byte* pages;             ///< block x key head
  T* tail;                      ///< slot x tail block x layer x key head x {key, value} x token x channel
  T* rows;                      ///< slot x key head x row x layer x {key, value} x channel
  std::uint32_t* row_counts;    ///< slot x key head
  std::uint32_t* refused_rows;  ///< slot x key head
  float* thresholds;            ///< slot x key head x {key, value}, in radians; NaN: not known yet

  /// Blocks of 64 tokens in the tail of a slot: the window, and what is not sealed yet.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t tail_blocks() const { return window / cache_page_format::tokens + 2; }
  /// Tokens that the tail of a slot has room for.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t tail_tokens() const {
    return tail_blocks() * cache_page_format::tokens;
  }

  /// Whether block tables may name this block.
  [[nodiscard]] TESSERA_FN constexpr bool has_block(std::int64_t block) const {
    return block >= 0 && block < block_count;
  }
  /// Whether there is this slot.
  [[nodiscard]] TESSERA_FN constexpr bool has_slot(std::int64_t slot) const { return slot >= 0 && slot < slot_count; }
  /// What is wrong with a sequence of at most `most` tokens, of which at most `most_sealed` pages can be sealed.
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
  /// What is wrong with the block of a page.
  [[nodiscard]] TESSERA_FN constexpr sequence_fault fault_of_block(std::int64_t block) const {
    return has_block(block) ? sequence_fault{} : sequence_fault{status_code::bad_block, block, block_count};
  }
  /// The angle of keys or values from which tokens of a head of a slot are retained.
  [[nodiscard]] TESSERA_FN constexpr float threshold(std::int64_t slot, std::int64_t head, int part) const {
    float const kept = thresholds[2 * head_of(slot, head) + part];
    return is_nan(kept) ? no_threshold : kept;
  }
  /// The first byte of a page.
  [[nodiscard]] TESSERA_FN constexpr std::byte* page(std::int64_t block, std::int64_t head) const {
    return pages + (block * heads + head) * format.bytes();
  }
  /// The key or value of token `token`, which is in the tail.
  [[nodiscard]] TESSERA_FN constexpr T* tail_row(std::int64_t slot, int layer, int part, std::int64_t head,
                                                 std::int64_t token) const {
    constexpr std::int64_t tokens = cache_page_format::tokens;
    std::int64_t const block = slot * tail_blocks() + token / tokens % tail_blocks();
    std::int64_t const list = ((block * format.layers + layer) * heads + head) * 2 + part;
    return tail + (list * tokens + token % tokens) * format.channels;
  }
  /// From the rows of a block of 64 tokens in the tail to those of the next one, in elements.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t tail_block_stride() const {
    return format.layers * heads * 2 * cache_page_format::tokens * format.channels;
  }
  /// Number of a head of a slot.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t head_of(std::int64_t slot, std::int64_t head) const {
    return slot * heads + head;
  }
  /// The key or value of a retained token: `row` as headers of pages number them, from the first one of the slot and
  /// head on.
  [[nodiscard]] TESSERA_FN constexpr T* retained_row(std::int64_t slot, std::int64_t head, std::int64_t row, int layer,
                                                     int part) const {
    std::int64_t const of_all = head_of(slot, head) * row_capacity + row;
    return rows + ((of_all * format.layers + layer) * 2 + part) * format.channels;
  }

  /// Elements or bytes of each region, for `slots` slots and `blocks` blocks.
  [[nodiscard]] constexpr std::int64_t page_bytes(std::int64_t blocks) const { return blocks * heads * format.bytes(); }
  /// Elements of the tails.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t tail_values(std::int64_t slots) const {
    return slots * tail_blocks() * format.layers * heads * 2 * cache_page_format::tokens * format.channels;
  }
  /// Elements of the retained tokens.
  [[nodiscard]] constexpr std::int64_t row_values(std::int64_t slots) const {
    return slots * heads * row_capacity * format.layers * 2 * format.channels;
  }
};

/// New keys and values of both layers; their first token is number `before` of the sequence. Any strides.
template <class T>
struct cache_inputs {
  head_view<T const> keys[2];    ///< of each layer: sequence x key head x token x channel
  head_view<T const> values[2];  ///< of each layer: sequence x key head x token x channel

  /// Keys or values of one layer.
  [[nodiscard]] TESSERA_FN constexpr head_view<T const> const& part(int layer, int which) const {
    return which == key_part ? keys[layer] : values[layer];
  }
};

/// Channels of a token, as they are stored.
template <class T>
struct stored_row {
  T const* first;       ///< channel 0
  std::int64_t stride;  ///< from channel to channel

  /// Of a channel.
  [[nodiscard]] TESSERA_FN constexpr T operator[](std::int64_t channel) const { return first[channel * stride]; }
};

/// Eight neighbouring channels of a row: one access to memory, where it is aligned to 16 bytes.
template <class T>
struct alignas(8 * sizeof(T)) row_chunk {
  static constexpr int channels = 8;

  T values[channels];  ///< of each channel

  /// The piece `which` of a row.
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
  /// Writes the piece `which` of a row whose channels are neighbours.
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

/// Tokens of sequences, wherever they are: new ones among the inputs, those before in the tail.
template <class T>
struct cache_source {
  cache_memory<T> memory;
  cache_inputs<T> inputs;  ///< null: all tokens are in the tail
  cache_sequences sequences;
  std::int64_t tokens;               ///< that the inputs have room for
  std::int64_t most_pages;           ///< of a sequence that are sealed at a time
  sequence_lengths new_tokens = {};  ///< of each sequence, in the inputs; null: `tokens`
  status_word* status = nullptr;     ///< where sequences and blocks are reported that cannot be

  /// What is wrong with a sequence.
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
  /// Tokens that are in the cache already.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t before(std::int64_t sequence) const {
    return max(sequences.length(sequence) - length_of(new_tokens, sequence, tokens), std::int64_t{0});
  }
  /// Tokens that are in the cache after the call.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t after(std::int64_t sequence) const {
    return sequences.length(sequence);
  }
  /// The pages that are to be sealed now.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t first_page(std::int64_t sequence) const {
    return sequences.sealed(sequence, before(sequence), memory.window);
  }
  /// Behind the last page that is to be sealed now: none of a sequence that cannot be.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t end_page(std::int64_t sequence) const {
    std::int64_t const first = first_page(sequence);
    return fault(sequence).is_none() ? last_page(sequence, first) : first;
  }
  /// A token's key or value.
  [[nodiscard]] TESSERA_FN constexpr stored_row<T> stored_row_of(std::int64_t sequence, int layer, int part,
                                                                 std::int64_t head, std::int64_t token) const {
    std::int64_t const of_inputs = token - before(sequence);
    if (of_inputs < 0) {
      return {memory.tail_row(sequences.slot(sequence), layer, part, head, token), 1};
    }
    head_view<T const> const& from = inputs.part(layer, part);
    return {&from(sequence, head, of_inputs, 0), from.stride(3)};
  }
  /// The element, as it is stored.
  [[nodiscard]] TESSERA_FN constexpr T stored(std::int64_t sequence, int layer, int part, std::int64_t head,
                                              std::int64_t token, std::int64_t channel) const {
    return token < before(sequence) ? memory.tail_row(sequences.slot(sequence), layer, part, head, token)[channel]
                                    : stored_input(sequence, layer, part, head, token, channel);
  }
  /// The element of a new token, as it is stored.
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
