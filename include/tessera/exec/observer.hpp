// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `observer`: is told what an executor enqueues: each launch of a program, clears and copies, and each choice among
/// programs for one call.
///
///     struct printer : tessera::observer {
///       void launched(tessera::launch const& l) override { std::cout << l.program << " x " << l.groups << "\n"; }
///       void chose(tessera::program_choice const& c) override { std::cout << c.text() << "\n"; }
///     };
///     printer prints;
///     tessera::cuda const exec{.options = {.watched_by = &prints}};
///
/// Its functions are called by the host thread that enqueues, before the launch; work on the device may still be
/// running then. If one of them throws, the exception leaves the call, and no more of its work is enqueued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/exec/refusal.hpp>

namespace tessera {
inline namespace v0 {

/// A program that an executor is about to run.
struct launch {
  std::string_view program;  ///< the name of the program's type; it lives as long as the process
  std::int64_t groups;       ///< how many groups run: tiles, or thread blocks of a persistent program
  int lanes;                 ///< lanes of a group
};

/// A program that is faster than the chosen one, and why it does not take the call.
struct refused_program {
  /// The program that was asked.
  std::string_view program;
  /// The reason why it does not take the call.
  refusal why;
};

/// Which program runs a call.
struct program_choice {
  std::string_view call;                 ///< the function that was called, or the name of the portable program
  std::string_view program;              ///< the program that runs
  bool is_portable;                      ///< whether that is the program for all executors
  std::vector<refused_program> refused;  ///< what was asked before, in this order

  /// Whether a portable program runs a call for which the executor has faster programs.
  [[nodiscard]] bool is_slower() const { return is_portable && !refused.empty(); }
  /// One line: "attention.forward: portable program, because quantized_forward: there is a bias".
  [[nodiscard]] std::string text() const {
    std::string line = std::string(call) + ": " + std::string(program);
    for (std::size_t i = 0; is_portable && i < refused.size(); ++i) {
      line += (i == 0 ? ", because " : "; ") + std::string(refused[i].program) + ": " + refused[i].why.text();
    }
    return line;
  }
};

/// Base of objects that watch executors. It must outlive the executors that have it.
class observer {
 public:
  observer() = default;
  /// Copies nothing: the base has no members.
  observer(observer const&) = default;
  /// Copies nothing: the base has no members.
  observer& operator=(observer const&) = default;
  virtual ~observer() = default;

  /// A program is about to run.
  virtual void launched(launch const& /*what*/) {}
  /// Bytes are about to be cleared, or copied.
  virtual void moved(std::int64_t /*bytes*/) {}
  /// A call has been given to one of several programs.
  virtual void chose(program_choice const& /*what*/) {}
};

}  // namespace v0
}  // namespace tessera
