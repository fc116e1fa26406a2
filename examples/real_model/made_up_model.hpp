// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A small model with random weights and a random text, for tests where there is no real model.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>

#include "language_model.hpp"

namespace tessera_examples {

/// Fills matrices with the same numbers everywhere: sums of the generator's own, which the standard fixes.
class made_up_weights {
 public:
  /// Values around `mean` with this standard deviation, 1 / sqrt(columns) by default.
  weight_matrix matrix(std::int64_t rows, std::int64_t columns, float mean = 0, float deviation = 0) {
    weight_matrix made{rows, columns, std::vector<tessera::bfloat16>(static_cast<std::size_t>(rows * columns))};
    float const wanted = deviation > 0 ? deviation : 1.0F / std::sqrt(static_cast<float>(columns));
    for (tessera::bfloat16& value : made.values) {
      value = tessera::store<tessera::bfloat16>(mean + wanted * next());
    }
    return made;
  }

 private:
  /// Nearly normal: the sum of twelve uniform numbers less their mean.
  float next() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) {
      sum += static_cast<float>(generator_() >> 8) * 0x1p-24F;
    }
    return sum;
  }

  std::mt19937 generator_{1};
};

/// SmolLM2's heads, but few layers, channels and tokens of the vocabulary.
inline language_model made_up_model(int layers) {
  language_model model;
  model.extents = {.layers = layers,
                   .channels = 384,
                   .query_heads = 6,
                   .key_heads = 3,
                   .head_channels = 64,
                   .vocabulary = 500,
                   .context = 1024,
                   .rope_theta = 10000,
                   .norm_epsilon = 1e-5F};
  model_extents const& n = model.extents;
  std::int64_t const keys = n.key_heads * n.head_channels;
  std::int64_t const inner = 512;
  made_up_weights weights;
  model.embedding = weights.matrix(n.vocabulary, n.channels, 0, 0.1F);
  for (int layer = 0; layer < layers; ++layer) {
    model.layers.push_back({weights.matrix(1, n.channels, 1, 0.1F), weights.matrix(n.channels, n.channels),
                            weights.matrix(keys, n.channels), weights.matrix(keys, n.channels),
                            weights.matrix(n.channels, n.channels), weights.matrix(1, n.channels, 1, 0.1F),
                            weights.matrix(inner, n.channels), weights.matrix(inner, n.channels),
                            weights.matrix(n.channels, inner)});
  }
  model.last_norm = weights.matrix(1, n.channels, 1, 0.1F);
  return model;
}

/// A text of random tokens.
inline std::vector<std::int32_t> made_up_tokens(language_model const& model, std::int64_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(model.extents.vocabulary)));
  }
  return tokens;
}

}  // namespace tessera_examples
