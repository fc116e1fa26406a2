// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/concepts/entropy_coder.hpp>
#include <tessera/entropy/fixed_coder.hpp>
#include <tessera/testing/laws/entropy_coder.hpp>

#include "support/catch.hpp"

using namespace tessera;

static_assert(EntropyCoder<fixed_coder>);

TEST_CASE("fixed-length codes are a lawful entropy coder", "[host]") {
  std::vector<std::uint8_t> symbols(256);
  std::iota(symbols.begin(), symbols.end(), std::uint8_t{0});
  CHECK(testing::check_laws<fixed_coder>({}, symbols).text() == "");
}

TEST_CASE("every symbol of the fixed coder takes eight bits", "[host]") {
  std::uint32_t state = fixed_coder::start();
  int words = 0;
  for (int i = 0; i < 1000; ++i) {
    words += fixed_coder::push(state, static_cast<std::uint8_t>(i), {}).occurred ? 1 : 0;
  }
  // Every second symbol makes a word of itself and the one before.
  CHECK(words == 500);
}
