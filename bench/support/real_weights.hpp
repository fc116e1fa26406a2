// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Weights and hidden states of real models, from the repository's test data.
#pragma once

#include <cstdint>
#include <vector>

namespace bench {

/// The bits of every tensor of tests/data/minilm_bf16.safetensors. The folder can be named by TESSERA_TEST_DATA in the
/// environment. Throws where the file is not there or programs were built without a JSON library.
std::vector<std::vector<std::uint16_t>> minilm_bf16();

/// Hidden states of a model at some tokens of a text, rows of its classifier, and which row is each next token.
struct real_classifier {
  std::int64_t tokens;
  std::int64_t vocabulary;  ///< rows
  std::int64_t channels;
  std::vector<std::uint16_t> hidden;      ///< bits of bf16, tokens x channels
  std::vector<std::uint16_t> classifier;  ///< bits of bf16, vocabulary x channels
  std::vector<std::int64_t> labels;       ///< a row for each token
};

/// The hidden states, classifier rows and labels of tests/data/smollm2_classifier.safetensors: the likeliest rows for
/// some tokens, or all of both if the folder has the large set of tests/data/make_data.py. The folder can be named by
/// TESSERA_TEST_DATA in the environment. Throws where the file is not there or programs were built without a JSON
/// library.
real_classifier smollm2_classifier();

}  // namespace bench
