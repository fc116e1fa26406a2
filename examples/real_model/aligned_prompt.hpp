// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Aligns the second layer of each merged pair to the first by tessera::aligned_merger, fitted to another text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/merge/aligned_merger.hpp>

#include "kept_prompt.hpp"
#include "measurement.hpp"

namespace tessera_examples {

/// The rotations of a pair's second layer.
struct pair_alignment {
  int first;  ///< the pair's first layer
  tessera::aligned_merger keys;
  tessera::aligned_merger values;
};
using pair_alignments = std::vector<pair_alignment>;

/// All heads of each token as one vector: tokens x (heads * channels).
inline own_matrix<bfloat16> tokens_of(head_view<bfloat16 const> heads) {
  own_matrix<bfloat16> matrix(heads.extent(2), heads.extent(1) * heads.extent(3));
  auto const to = heads_of(matrix, heads.extent(1));
  for (std::int64_t head = 0; head < heads.extent(1); ++head) {
    for (std::int64_t token = 0; token < heads.extent(2); ++token) {
      for (std::int64_t channel = 0; channel < heads.extent(3); ++channel) {
        to(0, head, token, channel) = heads(0, head, token, channel);
      }
    }
  }
  return matrix;
}

/// Fits pairs of neighbours from layer `first` on to the keys, before their rotation, and the values of a text.
inline pair_alignments fit_alignments(transformer const& net, std::span<std::int32_t const> text, int first,
                                      progress_report& report) {
  kept_prompt kept;
  static_cast<void>(
      net.forward(text, 0, with_progress(report, net.extents().layers, attention_that_keeps(net.exec(), kept))));
  std::int64_t const width = net.extents().key_heads * net.extents().head_channels;
  pair_alignments pairs;
  for (int layer = first; layer + 1 < net.extents().layers; layer += 2) {
    report.step("aligning layers " + std::to_string(layer) + " and " + std::to_string(layer + 1));
    pair_alignment pair{layer, tessera::aligned_merger(width), tessera::aligned_merger(width)};
    kept_layer const& one = kept.layers[static_cast<std::size_t>(layer)];
    kept_layer const& other = kept.layers[static_cast<std::size_t>(layer) + 1];
    own_matrix<bfloat16> const vectors[] = {tokens_of(one.keys.view()), tokens_of(other.keys.view()),
                                            tokens_of(one.values.view()), tokens_of(other.values.view())};
    pair.keys.add(vectors[0].view(), vectors[1].view());
    pair.values.add(vectors[2].view(), vectors[3].view());
    pair.keys.fit();
    pair.values.fit();
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

/// A prompt as a cache of aligned pairs keeps it: in pairs keys are not rotated by the position (they stand where
/// rotated ones do), and keys and values of the second layers are aligned.
inline kept_prompt align_prompt(kept_prompt prompt, std::span<pair_alignment const> pairs) {
  for (pair_alignment const& pair : pairs) {
    kept_layer& one = prompt.layers[static_cast<std::size_t>(pair.first)];
    kept_layer& other = prompt.layers[static_cast<std::size_t>(pair.first) + 1];
    one.rotated_keys = one.keys;
    own_matrix<bfloat16> keys = tokens_of(other.keys.view());
    own_matrix<bfloat16> values = tokens_of(other.values.view());
    pair.keys.align(keys.view(), keys.view());
    pair.values.align(values.view(), values.view());
    other.rotated_keys.put(0, heads_of(keys, other.keys.view().extent(1)));
    other.values.put(0, heads_of(values, other.keys.view().extent(1)));
  }
  return prompt;
}

/// Turns what the cache restored back, and rotates keys by their positions.
inline void undo_alignment(kept_prompt& prompt, std::span<pair_alignment const> pairs,
                           tessera::rotary_embedding const& rotary) {
  for (pair_alignment const& pair : pairs) {
    kept_layer& one = prompt.layers[static_cast<std::size_t>(pair.first)];
    kept_layer& other = prompt.layers[static_cast<std::size_t>(pair.first) + 1];
    own_matrix<bfloat16> keys = tokens_of(other.rotated_keys.view());
    own_matrix<bfloat16> values = tokens_of(other.values.view());
    pair.keys.restore(keys.view(), keys.view());
    pair.values.restore(values.view(), values.view());
    other.keys.put(0, heads_of(keys, other.keys.view().extent(1)));
    other.values.put(0, heads_of(values, other.keys.view().extent(1)));
    one.keys = one.rotated_keys;
    for (kept_layer* layer : {&one, &other}) {
      rotate(rotary, 0, layer->keys.view(), layer->rotated_keys.view());
    }
  }
}

}  // namespace tessera_examples
