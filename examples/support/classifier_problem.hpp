// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SmolLM2's classifier on real hidden states (tests/data/README.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/bfloat16.hpp>

#include "failure.hpp"
#include "input_file.hpp"
#include "safetensors.hpp"
#include "tensor_elements.hpp"

namespace tessera_examples {

/// Tokens, each with a label, and the rows of a classifier.
struct classifier_problem {
  std::size_t tokens = 0;
  std::size_t vocabulary = 0;
  std::size_t channels = 0;
  std::vector<tessera::bfloat16> hidden;      ///< tokens x channels
  std::vector<tessera::bfloat16> classifier;  ///< vocabulary x channels
  std::vector<std::int32_t> labels;
};

/// Reads smollm2_classifier.safetensors: the excerpt of tests/data, or what make_data.py --large writes, the whole
/// classifier and the hidden states of all tokens. Throws a failure where tensors do not fit together.
inline classifier_problem read_classifier(std::string const& path) {
  input_file const file(path);
  safetensors_reader const model(file, path);
  bool const is_whole = std::any_of(model.tensors().begin(), model.tensors().end(),
                                    [](tensor_entry const& tensor) { return tensor.name == "classifier"; });
  classifier_problem problem;
  problem.hidden = elements_of<tessera::bfloat16>(model, path, "hidden", "BF16");
  problem.classifier = elements_of<tessera::bfloat16>(model, path, is_whole ? "classifier" : "classifier_rows", "BF16");
  problem.labels = elements_of<std::int32_t>(model, path, is_whole ? "next_token_ids" : "next_token_rows", "I32");
  problem.tokens = problem.labels.size();
  problem.channels = problem.hidden.size() / problem.tokens;
  problem.vocabulary = problem.classifier.size() / std::max(problem.channels, std::size_t{1});
  bool fits = problem.channels > 0 && problem.tokens * problem.channels == problem.hidden.size() &&
              problem.vocabulary * problem.channels == problem.classifier.size();
  for (std::int32_t const label : problem.labels) {
    fits = fits && label >= 0 && static_cast<std::size_t>(label) < problem.vocabulary;
  }
  require(exit_code::unsound, fits, path, ": hidden states, classifier and labels do not fit together");
  return problem;
}

}  // namespace tessera_examples
