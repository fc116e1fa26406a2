// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What a model remembers of a text while it continues it token by token: keys and values of all layers, kept exactly,
/// in a compressed cache, or in a low-rank basis.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kept_prompt.hpp"
#include "transformer.hpp"

namespace tessera_examples {

class text_memory {
 public:
  text_memory() = default;
  text_memory(text_memory const&) = delete;
  text_memory& operator=(text_memory const&) = delete;
  virtual ~text_memory() = default;

  /// Takes the keys and values of a prompt, once and before all else.
  virtual void take(kept_prompt const& prompt) = 0;
  /// Adds one token's key and value to a layer, and attends to all of its tokens.
  virtual void attend(layer_heads const& in) = 0;
  /// Called when a token has been through all layers.
  virtual void end_token() {}
};

/// Makes a memory with room for so many tokens.
using make_memory = std::function<std::unique_ptr<text_memory>(transformer const&, std::int64_t)>;

/// The memory of a method by its name on the command line. Throws a failure for a name that has none.
make_memory memory_of_method(std::string const& name, int layers);

}  // namespace tessera_examples
