// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "real_weights.hpp"

#include <stdexcept>

#if __has_include(<nlohmann/json.hpp>)
#include <cstdlib>
#include <iterator>
#include <string>

#include "../../examples/support/input_file.hpp"
#include "../../examples/support/safetensors.hpp"

namespace bench {
namespace {

using tessera_examples::safetensors_reader;
using tessera_examples::tensor_entry;

std::string path_of(char const* name) {
  char const* const folder = std::getenv("TESSERA_TEST_DATA");
  return std::string(folder != nullptr ? folder : TESSERA_TEST_DATA) + "/" + name;
}

/// The elements of a tensor, which must be of type `dtype` and not empty.
template <class T>
std::vector<T> elements_of(safetensors_reader const& model, tensor_entry const& tensor, std::string const& path,
                           char const* dtype) {
  if (tensor.dtype != dtype || tensor.elements() == 0) {
    throw std::runtime_error(path + ": tensor " + tensor.name + " is empty or not of " + dtype);
  }
  return model.elements<T>(tensor);
}

/// The tensor that has one of two names.
tensor_entry const& tensor_named(safetensors_reader const& model, std::string const& path, char const* name,
                                 char const* other) {
  for (tensor_entry const& tensor : model.tensors()) {
    if (tensor.name == name || tensor.name == other) {
      return tensor;
    }
  }
  throw std::runtime_error(path + ": there is no tensor " + name);
}

}  // namespace

std::vector<std::vector<std::uint16_t>> minilm_bf16() {
  std::string const path = path_of("minilm_bf16.safetensors");
  tessera_examples::input_file const file(path);
  safetensors_reader const model(file, path);
  std::vector<std::vector<std::uint16_t>> all;
  for (tensor_entry const& tensor : model.tensors()) {
    all.push_back(elements_of<std::uint16_t>(model, tensor, path, "BF16"));
  }
  return all;
}

real_classifier smollm2_classifier() {
  std::string const path = path_of("smollm2_classifier.safetensors");
  tessera_examples::input_file const file(path);
  safetensors_reader const model(file, path);
  tensor_entry const& hidden = tensor_named(model, path, "hidden", "hidden");
  tensor_entry const& classifier = tensor_named(model, path, "classifier_rows", "classifier");
  bool const is_whole = classifier.name == "classifier";
  tensor_entry const& labels = tensor_named(model, path, is_whole ? "next_token_ids" : "next_token_rows", "");
  real_classifier real{0,
                       0,
                       0,
                       elements_of<std::uint16_t>(model, hidden, path, "BF16"),
                       elements_of<std::uint16_t>(model, classifier, path, "BF16"),
                       {}};
  for (std::int32_t const label : elements_of<std::int32_t>(model, labels, path, "I32")) {
    real.labels.push_back(label);
  }
  real.tokens = std::ssize(real.labels);
  real.channels = std::ssize(real.hidden) / real.tokens;
  real.vocabulary = std::ssize(real.classifier) / real.channels;
  if (hidden.shape != std::vector{real.tokens, real.channels} ||
      classifier.shape != std::vector{real.vocabulary, real.channels}) {
    throw std::runtime_error(path + ": hidden states, classifier and labels do not fit together");
  }
  return real;
}

}  // namespace bench
#else

namespace bench {

namespace {

[[noreturn]] void refuse() {
  throw std::runtime_error("built without nlohmann/json.hpp, which reading .safetensors files needs");
}

}  // namespace

std::vector<std::vector<std::uint16_t>> minilm_bf16() {
  refuse();
}

real_classifier smollm2_classifier() {
  refuse();
}

}  // namespace bench
#endif
