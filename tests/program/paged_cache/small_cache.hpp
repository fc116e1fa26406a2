// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The memory of a small cache of two layers, for tests of programs that read and write its pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera_test {

/// Three sequences in slots and blocks that lie in no order: of 0, 50 and 203 tokens, the last with two sealed pages.
struct small_cache {
  static constexpr std::int64_t heads = 2;
  static constexpr std::int64_t most_tokens = 1000;
  static constexpr int channels = 32;
  tessera::cache_memory<tessera::bfloat16> memory{
      {channels, 4, 4, 1, 2}, heads, 64, 5, 3, most_tokens, 6, {}, {}, {}, {}, {}, {}};
  std::vector<tessera::bfloat16> tail;
  std::vector<tessera::bfloat16> rows;
  std::vector<std::uint32_t> pages;
  std::vector<float> thresholds;
  std::vector<std::int32_t> slots{1, 2, 0};
  std::vector<std::int32_t> lengths{0, 50, 203};
  std::vector<std::int32_t> blocks{0, 0, 1, 1, 4, 2};  ///< sequence x page

  small_cache()
      : tail(static_cast<std::size_t>(memory.tail_values(3))),
        rows(static_cast<std::size_t>(memory.row_values(3))),
        pages(static_cast<std::size_t>(memory.page_bytes(6) / 4)),
        thresholds(3 * heads * 2) {
    for (std::size_t i = 0; i < tail.size(); ++i) {
      tail[i] = tessera::store<tessera::bfloat16>(tessera::testing::gauss{}.value(1, i));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = tessera::store<tessera::bfloat16>(tessera::testing::gauss{}.value(2, i));
    }
    for (std::size_t i = 0; i < pages.size(); ++i) {
      // Halves between 2^-7 and 2, so that all parameters are numbers.
      pages[i] = (static_cast<std::uint32_t>(tessera::testing::hash(3, i)) & 0x1fff1fffU) | 0x20002000U;
    }
    for (std::size_t i = 0; i < thresholds.size(); ++i) {
      thresholds[i] = 0.1F * static_cast<float>(i + 1);
    }
    memory.tail = tail.data();
    memory.rows = rows.data();
    memory.pages = reinterpret_cast<std::byte*>(pages.data());
    memory.thresholds = thresholds.data();
  }
  [[nodiscard]] tessera::cache_sequences sequences() const { return {{blocks.data(), {3, 2}}, slots, lengths}; }
  tessera::cache_page_header& header(std::int64_t block, std::int64_t head) {
    return *reinterpret_cast<tessera::cache_page_header*>(memory.page(block, head) + memory.format.header());
  }
};

/// The small cache, of whose last sequence 100 tokens are new, so that both of its pages are sealed now: 103 tokens are
/// in the tail, the others in inputs. No other sequence has new tokens, and none of them seals a page.
struct sealing_cache : small_cache {
  static constexpr std::int64_t fresh = 100;
  std::vector<tessera::bfloat16> inputs = std::vector<tessera::bfloat16>(4 * 3 * heads * fresh * channels);
  std::vector<std::int32_t> new_tokens{0, 0, 100};

  sealing_cache() {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = tessera::store<tessera::bfloat16>(tessera::testing::gauss{}.value(9, i));
    }
  }
  [[nodiscard]] tessera::head_view<tessera::bfloat16 const> part(std::int64_t which) const {
    return {inputs.data() + which * 3 * heads * fresh * channels, {3, heads, fresh, channels}};
  }
  [[nodiscard]] tessera::cache_source<tessera::bfloat16> source() const {
    return {memory, {{part(0), part(1)}, {part(2), part(3)}}, sequences(), fresh, 2, new_tokens};
  }
  /// A channel of a token of the last sequence, wherever it is.
  tessera::bfloat16& token(std::int64_t token, int layer, int which, std::int64_t head, int channel) {
    if (token < 103) {
      return memory.tail_row(0, layer, which, head, token)[channel];
    }
    std::int64_t const list = (which == tessera::key_part ? layer : 2 + layer) * 3 + 2;
    return inputs[static_cast<std::size_t>(((list * heads + head) * fresh + token - 103) * channels + channel)];
  }
};

}  // namespace tessera_test
