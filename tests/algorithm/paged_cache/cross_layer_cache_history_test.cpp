// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/exec/cpu.hpp>

#include "support/cache_histories.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a fork goes on as it was when its origin has ended and the slot is in use again", "[host]") {
  check_fork(cpu{.threads = 1}, 64);
}

TEST_CASE("padding before a prompt sets no threshold", "[host][slow]") {
  for (padding const kind : {padding::zeros, padding::equal, padding::turned, padding::not_finite}) {
    CAPTURE(static_cast<int>(kind));
    check_padding(cpu{.threads = 1}, retain_most_different::range(0.05F), kind);
    check_padding(cpu{.threads = 1}, retain_most_different::fraction(0.05F), kind);
  }
}
