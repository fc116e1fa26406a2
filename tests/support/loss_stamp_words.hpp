// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The words by which wait() complains of a backward pass that follows another forward pass.
#pragma once

#include <string>

#include <tessera/program/loss/stamp.hpp>

namespace tessera_test {

/// Words of the complaint about this part that no other part's complaint has, without numbers.
inline std::string words_of(tessera::loss_stamp::part part) {
  constexpr char const* words[tessera::loss_stamp::size] = {
      "there is no forward()", "tokens but",    "entries but",  "channels but",
      "had the reduction",     "other options", "other inputs", "another plan"};
  return words[part];
}

}  // namespace tessera_test
