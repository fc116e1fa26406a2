// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// In which order quantize_heads goes over tiles of 128 tokens of queries, keys and values.
///
/// Keys and values are read twice: to be summarized, and to be encoded. Heads of keys come in sections; those of a
/// section are encoded right after those of the next were summarized, while they are still in a cache:
///
///     summarize 0, summarize 1, encode 0, summarize 2, encode 1, ... encode the last
///
/// So a tile that is to be encoded always comes after all tiles that its mean or scale depends on.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

enum class quantize_task : std::int32_t { none, summarize_keys, summarize_values, queries, keys, values };

/// A tile of 128 tokens of a head.
struct quantize_work {
  quantize_task task;
  std::int32_t head;  ///< of all sequences
  std::int32_t tile;
};

struct quantize_schedule {
  std::int32_t key_heads;    ///< of all sequences
  std::int32_t group;        ///< query heads of a key head
  std::int32_t query_tiles;  ///< of a head; 0 where queries are not wanted
  std::int32_t key_tiles;    ///< of a head
  std::int32_t section;      ///< key heads
  bool has_keys;
  bool has_values;
  bool has_key_mean;  ///< keys are summarized, too

  [[nodiscard]] TESSERA_FN constexpr std::int32_t count() const {
    return key_heads * (summaries_each() + encoded_each());
  }

  [[nodiscard]] TESSERA_FN constexpr quantize_work at(std::int32_t index) const {
    if (index >= count()) {
      return {quantize_task::none, 0, 0};
    }
    const std::int32_t sections = divide_up(key_heads, section);
    const std::int32_t first = heads_of(0) * summaries_each();
    if (index < first) {
      return summarize(0, index);
    }
    if (sections == 1) {
      return encode(0, index - first);
    }
    const std::int32_t turn = section * (summaries_each() + encoded_each());
    const std::int32_t which = min((index - first) / turn, sections - 2);
    std::int32_t rest = index - first - which * turn;
    const std::int32_t summaries = heads_of(which + 1) * summaries_each();
    if (rest < summaries) {
      return summarize(which + 1, rest);
    }
    rest -= summaries;
    const std::int32_t encoded = section * encoded_each();
    return rest < encoded ? encode(which, rest) : encode(which + 1, rest - encoded);
  }

 private:
  [[nodiscard]] TESSERA_FN constexpr std::int32_t key_kinds() const {
    return (has_keys ? 1 : 0) + (has_values ? 1 : 0);
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t summary_kinds() const {
    return (has_key_mean ? 1 : 0) + (has_values ? 1 : 0);
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t summaries_each() const { return summary_kinds() * key_tiles; }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t encoded_each() const {
    return group * query_tiles + key_kinds() * key_tiles;
  }
  [[nodiscard]] TESSERA_FN constexpr std::int32_t heads_of(std::int32_t which) const {
    return min(section, key_heads - which * section);
  }

  [[nodiscard]] TESSERA_FN constexpr quantize_work summarize(std::int32_t which, std::int32_t rest) const {
    const std::int32_t list = rest / key_tiles;
    const std::int32_t tile = rest - list * key_tiles;
    const bool is_key = has_key_mean && list % summary_kinds() == 0;
    return {is_key ? quantize_task::summarize_keys : quantize_task::summarize_values,
            which * section + list / summary_kinds(), tile};
  }
  [[nodiscard]] TESSERA_FN constexpr quantize_work encode(std::int32_t which, std::int32_t rest) const {
    const std::int32_t queries = heads_of(which) * group * query_tiles;
    if (rest < queries) {
      const std::int32_t head = rest / query_tiles;
      return {quantize_task::queries, which * section * group + head, rest - head * query_tiles};
    }
    rest -= queries;
    const std::int32_t list = rest / key_tiles;
    const bool is_key = has_keys && list % key_kinds() == 0;
    return {is_key ? quantize_task::keys : quantize_task::values, which * section + list / key_kinds(),
            rest - list * key_tiles};
  }
};

}  // namespace v0
}  // namespace tessera
