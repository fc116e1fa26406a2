// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The types of calls of a cross_layer_cache: how it keeps layers, and how many tokens a call adds.
///
///     tessera::minicache::options_type const options{.parts = tessera::minicache::half_merged(32)};
///     tessera::cache_tokens const prompt{.tokens = 1000};
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_layout.hpp>
#include <tessera/concepts/merger.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// The numbers of new tokens in a call.
struct cache_tokens {
  std::int64_t tokens = 0;           ///< the most new tokens of a sequence
  sequence_lengths new_tokens = {};  ///< new tokens of each sequence; null: `tokens` of each
};

/// The extents of a call that appends.
struct cache_append_shape {
  std::int64_t sequences;   ///< sequences of the call
  std::int64_t tokens = 1;  ///< the most new tokens of a sequence
};

/// How a cross_layer_cache of these M, Retention and C keeps layers.
template <Merger M, std::derived_from<retain_most_different> Retention, PageCodec C>
struct cross_layer_cache_options {
  /// A single layer, which is not in a pair.
  [[nodiscard]] static cache_layers single() { return kept_as(1); }
  /// Two neighbouring layers that share directions.
  [[nodiscard]] static cache_layers pair() {
    static_assert(merges_pairs<M>, "tessera: a cross_layer_cache of this merger (no_merger) has no pairs of layers");
    static_assert(C::most_layers == 2, "tessera: a cross_layer_cache of this codec has no pairs of layers");
    return kept_as(2);
  }
  /// The paper's choice: the first half of the layers are single, the others pairs; if their number is odd, the first
  /// of them is single, too.
  [[nodiscard]] static std::vector<cache_layers> half_merged(int layers) {
    int const pairs = layers / 2 / 2;
    std::vector<cache_layers> parts(static_cast<std::size_t>(layers - 2 * pairs), single());
    parts.resize(parts.size() + static_cast<std::size_t>(pairs), pair());
    return parts;
  }

  std::vector<cache_layers> parts{single()};  ///< all layers of the model, in order; by default one layer
  M merger = {};                              ///< merges the vectors of pairs
  C codec = {};                               ///< codes pages

 private:
  [[nodiscard]] static cache_layers kept_as(int layers) {
    cache_layers made;
    made.layers = layers;
    made.key_bits = C::key_bits;
    made.value_bits = C::value_bits;
    made.value_group = C::value_group;
    made.retention = layers == 2 ? retain_most_different(Retention{}) : retain_most_different::none();
    made.row_capacity = layers == 2 ? -1 : 0;
    made.whole_tokens = Retention::whole_tokens;
    return made;
  }
};

}  // namespace v0
}  // namespace tessera
