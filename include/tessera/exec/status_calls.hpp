// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `status_calls`: gives each function that enqueues programs its own status word, so that wait() can name the call
/// that failed. Programs know only the word's address.
///
///     program.status = status_of(exec, {"linear_loss.forward", "token"});
///     exec.run(program, groups);
///     exec.wait();     // "linear_loss.forward: label 12345 of token 17 is no entry of 100"
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include <tessera/core/check.hpp>
#include <tessera/core/status.hpp>

namespace tessera {
inline namespace v0 {

/// The call that a status word belongs to.
struct status_call {
  char const* function;           ///< as in messages: "attention.forward"
  char const* unit = "position";  ///< what positions count: "token", "block"
};

/// The calls that an executor knows, by the numbers of their words. Word 0 belongs to programs that users run.
class status_calls {
 public:
  /// The number of an executor's words: more than there are functions in the library.
  static constexpr int most = 64;

  /// The number of the call's word. It is always the same, so that a CUDA graph may use the word for as long as the
  /// executor lives. Calls beyond the last word share word 0.
  [[nodiscard]] int number_of(status_call const& call) {
    if (int const known = find(call)) {
      return known;
    }
    std::lock_guard const lock(mutex_);
    if (int const known = find(call)) {
      return known;
    }
    int const count = count_.load(std::memory_order_relaxed);
    if (count + 1 == most) {
      return 0;
    }
    calls_[static_cast<std::size_t>(count)] = {call.function, call.unit};
    count_.store(count + 1, std::memory_order_release);
    return count + 1;
  }

  /// Throws what the words say, in the order in which the calls were first made. The exception is that of the first
  /// word that failed, and its text is that of all that failed. Messages name the function `wait` for word 0.
  void throw_if_failed(std::vector<status_word> const& words, char const* wait) {
    std::lock_guard const lock(mutex_);
    status_word first;
    std::string text;
    auto const count = static_cast<std::size_t>(count_.load(std::memory_order_relaxed));
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!words[i].is_ok()) {
        bool const is_named = i > 0 && i <= count;
        std::string const said = detail::status_message(words[i], is_named ? calls_[i - 1].function.c_str() : wait,
                                                        is_named ? calls_[i - 1].unit.c_str() : "position");
        text += (text.empty() ? "" : "; ") + said;
        first = first.is_ok() ? words[i] : first;
      }
    }
    if (!first.is_ok()) {
      detail::throw_status(first, text);
    }
  }

 private:
  struct known_call {
    std::string function;
    std::string unit;
  };
  /// The number of a call that is known, or 0. Threads need no lock for it: known calls never change.
  [[nodiscard]] int find(status_call const& call) const {
    int const count = count_.load(std::memory_order_acquire);
    for (int i = 0; i < count; ++i) {
      known_call const& known = calls_[static_cast<std::size_t>(i)];
      if (std::strcmp(known.function.c_str(), call.function) == 0 && std::strcmp(known.unit.c_str(), call.unit) == 0) {
        return i + 1;
      }
    }
    return 0;
  }

  std::mutex mutex_;
  std::atomic<int> count_{0};  ///< of calls that are known
  std::array<known_call, most - 1> calls_;
};

/// The word of a call; where an executor has only one word, that one.
template <class Exec>
[[nodiscard]] inline status_word* status_of(Exec const& exec, status_call const& call) {
  if constexpr (requires { exec.status(call); }) {
    return exec.status(call);
  } else {
    return exec.status();
  }
}

}  // namespace v0
}  // namespace tessera
