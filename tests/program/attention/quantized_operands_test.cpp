// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/program/attention/quantized_operands.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("codes have whole tiles of 128 tokens", "[host]") {
  CHECK(padded_tokens(0) == 0);
  CHECK(padded_tokens(1) == 128);
  CHECK(padded_tokens(127) == 128);
  CHECK(padded_tokens(128) == 128);
  CHECK(padded_tokens(129) == 256);
  CHECK(padded_tokens((std::int64_t{1} << 40) + 1) == (std::int64_t{1} << 40) + 128);
}

TEST_CASE("codes of 4 bits are two to an element, the even channel first", "[host]") {
  std::vector<int4x2> pairs;
  std::vector<std::int8_t> bytes;
  for (int channel = 0; channel < 8; channel += 2) {
    pairs.push_back(pack_int4(channel - 8, 7 - channel));
    bytes.push_back(static_cast<std::int8_t>(channel - 128));
    bytes.push_back(static_cast<std::int8_t>(127 - channel));
  }
  quantized_keys<int4x2> const halves{{pairs.data(), {1, 1, 1, 4}}, {}};
  quantized_keys<std::int8_t> const wholes{{bytes.data(), {1, 1, 1, 8}}, {}};
  for (int channel = 0; channel < 8; ++channel) {
    int const even = channel - channel % 2;
    CHECK(halves.code(0, 0, 0, channel) == (channel % 2 == 0 ? even - 8 : 7 - even));
    CHECK(wholes.code(0, 0, 0, channel) == (channel % 2 == 0 ? even - 128 : 127 - even));
  }
}
