// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `message_of`: the message that a call throws.
#pragma once

#include <exception>
#include <string>

namespace tessera_test {

/// The message that a call throws; empty if it throws nothing.
template <class Call>
std::string message_of(Call const& call) {
  try {
    call();
  } catch (std::exception const& error) {
    return error.what();
  }
  return "";
}

}  // namespace tessera_test
