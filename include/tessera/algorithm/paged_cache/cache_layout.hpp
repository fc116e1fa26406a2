// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The extents of a whole model's compressed cache, how its layers are kept, and where they lie in memory.
///
///     tessera::cache_layout<bfloat16> const layout(extents, parts);
///     layout.plan.describe();                                          // what takes how much
///     auto const memory = layout.memory(0, extents, tessera::workspace(layout.plan, block));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>

namespace tessera {
inline namespace v0 {

/// The extents that a cache has room for.
struct cache_extents {
  std::int64_t slots;         ///< sequences at a time
  std::int64_t tokens;        ///< the most tokens of a sequence
  std::int64_t blocks;        ///< blocks of 64 tokens, for all sequences together
  std::int64_t heads;         ///< key heads
  std::int64_t channels;      ///< channels of a head (the head dimension)
  std::int64_t window = 128;  ///< newest tokens of a sequence that stay uncompressed, a multiple of 64
};

/// How one layer, or a pair of neighbouring layers, is kept. With a direction_codec, bits and groups can be chosen (a
/// direction_codecs names those for which a GPU is to have its own kernels); with a quantized_codec they must be those
/// of its quantizers.
struct cache_layers {
  int layers = 2;      ///< 1: a single layer; 2: a merged pair
  int key_bits = 4;    ///< bits of a key's code
  int value_bits = 4;  ///< bits of a value's code
  /// Channels of a value that share a scale; reduced to the next number that divides the channels.
  int value_group = 64;
  retain_most_different retention = {};  ///< the rule by which tokens of a pair are kept unmerged
  /// Room for retained tokens of a head of a sequence; -1: a twentieth of the tokens.
  std::int64_t row_capacity = -1;
  bool whole_tokens = false;  ///< whether a vector is that of all heads of a token together
};

/// Where all parts of a cache lie in one block of memory. T: bfloat16 or float16. C: codes pages.
template <class T, PageCodec C = direction_codec<>>
struct cache_layout {
  /// The regions of one part.
  struct part_regions {
    cache_page_format format;          ///< the format of the part's pages
    std::int64_t row_capacity;         ///< room for retained tokens of a head of a sequence
    region<std::byte> pages;           ///< the pages, blocks x heads
    region<T> tail;                    ///< the newest tokens, slots x heads x tokens
    region<T> rows;                    ///< the retained tokens, slots x heads x tokens
    region<std::uint32_t> row_counts;  ///< retained tokens of each slot and head
    region<std::uint32_t> refused;     ///< tokens that found no room to be retained, of each slot and head
    /// Angles from which on tokens are retained, for keys and values of each slot and head.
    region<float> thresholds;
  };
  workspace_plan plan{"cross_layer_cache"};  ///< all regions
  std::vector<part_regions> regions;         ///< the regions of each part

  /// Throws shape_error or value_error for impossible extents and parts.
  cache_layout(cache_extents const& e, std::vector<cache_layers> const& parts, C codec = {}) {
    constexpr char const* where = "cross_layer_cache";
    check<shape_error>(e.slots >= 0 && e.blocks >= 0 && e.heads >= 1 && e.tokens >= 0, where, ": there are ", e.slots,
                       " slots of ", e.tokens, " tokens, ", e.blocks, " blocks and ", e.heads,
                       " heads but none may be negative and heads must be at least 1");
    check<shape_error>(e.window >= 0 && e.window % cache_page_format::tokens == 0, where, ": the window has ", e.window,
                       " tokens but must have a multiple of ", cache_page_format::tokens);
    check<shape_error>(e.channels >= 32 && e.channels <= 256, where, ": heads have ", e.channels,
                       " channels but must have from 32 to ", 256);
    for (cache_layers const& part : parts) {
      add(e, part, codec);
    }
  }
  /// Views of one part.
  [[nodiscard]] cache_memory<T> memory(std::size_t part, cache_extents const& e, workspace const& space) const {
    part_regions const& at = regions[part];
    return {at.format,
            e.heads,
            e.window,
            at.row_capacity,
            e.slots,
            e.tokens,
            e.blocks,
            space[at.pages].data,
            space[at.tail].data,
            space[at.rows].data,
            space[at.row_counts].data,
            space[at.refused].data,
            space[at.thresholds].data};
  }

 private:
  void add(cache_extents const& e, cache_layers const& part, C const& codec) {
    constexpr char const* where = "cross_layer_cache";
    check<value_error>(part.value_group >= 1, where, ": groups of values have ", part.value_group,
                       " channels but must have at least ", 1);
    check<value_error>(!is_nan(part.retention.amount), where, ": the amount that is retained is ",
                       part.retention.amount, " but must be a number");
    auto const channels = static_cast<int>(e.channels);
    cache_page_format const format{channels, part.key_bits, part.value_bits, divide_up(channels, part.value_group),
                                   part.layers};
    page_format_fault const fault = codec.fault(format);
    check<shape_error>(fault.is_none() || !fault.is_of_shape, where, ": ", fault.begin, fault.found, fault.middle,
                       fault.limit, fault.end);
    check<value_error>(fault.is_none(), where, ": ", fault.begin, fault.found, fault.middle, fault.limit, fault.end);
    check<shape_error>(format.layers >= 1 && format.layers <= C::most_layers, where, ": a part has ", format.layers,
                       " layers but pages of this codec have at most ", C::most_layers);
    constexpr std::int64_t share = 20;
    std::int64_t const capacity = part.row_capacity >= 0 ? part.row_capacity : divide_up(e.tokens, share);
    std::int64_t const heads = checked_multiply(where, e.slots, e.heads);
    check<shape_error>(capacity <= INT32_MAX, where, ": ", capacity,
                       " retained tokens of a head need numbers of more than 31 bits");
    cache_memory<T> const sizes{format, e.heads, e.window, capacity, e.slots, e.tokens, e.blocks,
                                {},     {},      {},       {},       {},      {}};
    std::string const name = "part " + std::to_string(regions.size());
    std::int64_t const head_tail = std::int64_t{2} * format.layers * cache_page_format::tokens * format.channels;
    std::int64_t const tails = checked_multiply(where, heads, sizes.tail_blocks());
    std::int64_t const pages = checked_multiply(where, e.blocks, e.heads);
    part_regions added{format, capacity, {}, {}, {}, {}, {}, {}};
    added.pages =
        plan.template add<std::byte>(name + ": pages", checked_multiply(where, pages, codec.page_bytes(format)));
    added.tail = plan.template add<T>(name + ": tail", checked_multiply(where, tails, head_tail));
    added.rows = plan.template add<T>(name + ": retained", sizes.row_values(e.slots));
    added.row_counts = plan.template add<std::uint32_t>(name + ": counts of retained", heads);
    added.refused = plan.template add<std::uint32_t>(name + ": counts of refused", heads);
    added.thresholds = plan.template add<float>(name + ": thresholds", checked_multiply(where, heads, 2));
    regions.push_back(added);
  }
};

}  // namespace v0
}  // namespace tessera
