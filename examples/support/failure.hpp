// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the example programs fail: an exception with a message for people and the exit code that goes with it.
#pragma once

#include <stdexcept>
#include <string>

#include <tessera/core/check.hpp>

#include "printable.hpp"

namespace tessera_examples {

/// The exit codes of all example programs.
enum class exit_code : int {
  success = 0,
  usage = 1,       ///< the command line makes no sense
  unreadable = 2,  ///< a file is missing or cannot be read
  unsound = 3,     ///< a file is truncated, corrupt or something else altogether
  unwritable = 4,  ///< a file cannot be written: it exists, the disk is full, ...
};

class failure : public std::runtime_error {
 public:
  failure(exit_code code, std::string const& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] exit_code code() const noexcept { return code_; }

 private:
  exit_code code_;
};

/// Throws a `failure` with the joined parts unless `holds`.
template <class... Parts>
void require(exit_code code, bool holds, Parts const&... parts) {
  if (!holds) {
    throw failure(code, tessera::join(parts...));
  }
}

/// A name from a file in a form that is safe for a terminal: quoted, printable, not longer than a line.
inline std::string shown(std::string const& name) {
  return "\"" + printable(name) + "\"";
}

}  // namespace tessera_examples
