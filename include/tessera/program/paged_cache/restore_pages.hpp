// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `restore_pages` restores a layer's keys and values from pages, retained tokens and the tail.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/cache_sequences.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Restores keys and values. Tokens that are retained or in the tail are restored bit for bit, if `Result` is T.
/// Nothing is written beyond the length of a sequence, nor for an impossible sequence. A group takes 64 tokens of a
/// head.
template <class T, class Result, PageCodec C>
struct restore_pages {
  static constexpr int lanes = 128;
  struct scratch_type {};

  cache_memory<T> memory;
  cache_sequences sequences;
  int layer;                 ///< which layer of the part: 0 or 1
  head_view<Result> keys;    ///< sequence x key head x token x channel
  head_view<Result> values;  ///< sequence x key head x token x channel
  status_word* status;       ///< where impossible sequences and blocks are reported
  C codec = {};              ///< reads pages

  /// The most pages and tail blocks of a sequence.
  TESSERA_FN constexpr std::int64_t tiles() const {
    return divide_up(keys.extent(2), std::int64_t{cache_page_format::tokens});
  }
  TESSERA_FN constexpr std::int64_t groups() const { return sequences.size() * memory.heads * tiles(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    constexpr int tokens = cache_page_format::tokens;
    std::int64_t const page = which % tiles();
    std::int64_t const head = which / tiles() % memory.heads;
    std::int64_t const sequence = which / tiles() / memory.heads;
    std::int64_t const length = sequences.length(sequence);
    std::int64_t const sealed = sealed_pages(sequences, sequence, length, memory.window);
    std::int64_t const slot = sequences.slot(sequence);
    std::int64_t const end = min((page + 1) * tokens, min(length, keys.extent(2)));
    sequence_fault fault =
        memory.fault_of({slot, length, length, sealed, sealed}, memory.most_tokens, sequences.blocks.extent(1));
    bool const is_sealed = fault.is_none() && page < sealed && page * tokens < end;
    std::int64_t const block = is_sealed ? sequences.blocks(sequence, page) : 0;
    if (is_sealed) {
      fault = memory.fault_of_block(block);
    }
    if (!fault.is_none()) {
      fault.report(group, status, sequence);
      return;
    }
    int const channels = memory.format.channels;
    for (int lane : group) {
      for (std::int64_t i = page * tokens * channels + lane; i < end * channels; i += lanes) {
        std::int64_t const token = i / channels;
        int const channel = static_cast<int>(i % channels);
        if (is_sealed) {
          restore(codec.reader(memory.format, memory.page_of(codec, block, head), layer), {sequence, slot, head}, token,
                  channel);
        } else {
          keys(sequence, head, token, channel) = copied(memory.tail_row(slot, layer, key_part, head, token)[channel]);
          values(sequence, head, token, channel) =
              copied(memory.tail_row(slot, layer, value_part, head, token)[channel]);
        }
      }
    }
  }

 private:
  struct coordinates {
    std::int64_t sequence;
    std::int64_t slot;
    std::int64_t head;
  };
  TESSERA_FN void restore(page_reader_t<C> const& from, coordinates const& of, std::int64_t token, int channel) const {
    int const at = static_cast<int>(token % cache_page_format::tokens);
    Result& key = keys(of.sequence, of.head, token, channel);
    Result& value = values(of.sequence, of.head, token, channel);
    if (from.is_retained(at)) {
      std::int64_t const row = from.row_of(at);
      key = copied(memory.retained_row(of.slot, of.head, row, layer, key_part)[channel]);
      value = copied(memory.retained_row(of.slot, of.head, row, layer, value_part)[channel]);
    } else {
      key = store<Result>(from.key(at, channel));
      value = store<Result>(from.value(at, channel));
    }
  }
  TESSERA_FN static Result copied(T value) {
    if constexpr (std::is_same_v<T, Result>) {
      return value;
    } else {
      return store<Result>(load(value));
    }
  }
};

}  // namespace v0
}  // namespace tessera
