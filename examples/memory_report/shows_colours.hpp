// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Whether text on stdout may have colours.
#pragma once

#include <cstdlib>
#include <string>
#include <unistd.h>

namespace tessera_examples {

/// Whether colours can be shown, as https://no-color.org and CLICOLOR_FORCE ask for.
inline bool shows_colours() {
  char const* const none = std::getenv("NO_COLOR");
  char const* const forced = std::getenv("CLICOLOR_FORCE");
  if (none != nullptr && *none != '\0') {
    return false;
  }
  return ::isatty(STDOUT_FILENO) == 1 || (forced != nullptr && std::string(forced) != "0");
}

}  // namespace tessera_examples
