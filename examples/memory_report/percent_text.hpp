// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Shares of the whole in words.
#pragma once

#include <string>

#include "../support/text_table.hpp"

namespace tessera_examples {

/// 0.125 is "12.5 %".
inline std::string percent_text(double share) {
  return fixed(100 * share, 1) + " %";
}

}  // namespace tessera_examples
