// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `hidden_progress`: whom a backward pass of linear_loss tells, on the host, how far the gradient of hidden states is,
/// so that work on another stream can begin with its first rows while others are multiplied. vocabulary_parallel adds
/// them up over ranks in this way.
///
///     std::function<void(std::int64_t)> const told = [](std::int64_t tokens) {
///       std::printf("what is enqueued now finds %d whole rows\n", static_cast<int>(tokens));
///     };
///     tessera::hidden_progress const progress{&told, 1024};
///     loss::backward(exec, inputs, {}, {}, gradients, space, {}, progress);
#pragma once

#include <cstdint>
#include <functional>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Who is told, and in which steps. Programs tell as often as they can without being slower: where the gradient of the
/// classifier is wanted, those of tensor cores make the last part of it after that of hidden states, and tell once
/// before it. With the filter's order of entries they tell when all is enqueued. The order in which parts of the
/// vocabulary are added up may be another one than without, so that results may differ by rounding; they are the same
/// bits each time.
struct hidden_progress {
  /// Called on the host with a number of tokens, never less than before: what later work on the executor's stream finds
  /// of the first so many rows is whole. The last call has all tokens. Null: nobody is told.
  std::function<void(std::int64_t)> const* told = nullptr;
  std::int64_t step = 0;  ///< tokens for which it is worth to be told; 0: all
  /// Multiprocessors of a GPU that programs leave free after they have told, for what begins then.
  int spared_multiprocessors = 0;
  std::int64_t before = 0;  ///< tokens before those of the pass

  /// Whether somebody is told.
  [[nodiscard]] bool is_wanted() const { return told != nullptr; }
  /// Tells that the first `tokens` rows of the pass are enqueued.
  void tell(std::int64_t tokens) const {
    if (is_wanted()) {
      (*told)(before + tokens);
    }
  }
  /// What a pass over the tokens from `first` on tells.
  [[nodiscard]] hidden_progress from(std::int64_t first) const {
    hidden_progress made = *this;
    made.before += first;
    return made;
  }
};

}  // namespace v0
}  // namespace tessera
