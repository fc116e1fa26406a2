// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Weights and hidden states of real models, from the repository's test data.
#pragma once

#include <cstdint>
#include <vector>

namespace bench {

/// The bits of every tensor of tests/data/minilm_bf16.safetensors. TESSERA_TEST_DATA in the environment can
/// name the folder. Throws where the file is not there or programs were built without a JSON library.
std::vector<std::vector<std::uint16_t>> minilm_bf16();

/// Hidden states of a model at some tokens of a text, rows of its classifier, and the row of each next token.
struct real_classifier {
  std::int64_t tokens;
  std::int64_t vocabulary;  ///< rows of the classifier
  std::int64_t channels;
  std::vector<std::uint16_t> hidden;      ///< bits of bf16, tokens x channels
  std::vector<std::uint16_t> classifier;  ///< bits of bf16, vocabulary x channels
  std::vector<std::int64_t> labels;       ///< for each token, the row of the next token
};

/// The hidden states, classifier rows and labels of tests/data/smollm2_classifier.safetensors: the likeliest rows for
/// some tokens, or all rows and tokens if the folder has the large set of tests/data/make_data.py. TESSERA_TEST_DATA in
/// the environment can name the folder. Throws where the file is not there or programs were built without a JSON
/// library.
real_classifier smollm2_classifier();

}  // namespace bench
