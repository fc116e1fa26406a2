// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/codes/code_widening.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Whether all codes of 6 rows of 32 columns are widened to where their tokens lie.
template <class Code, class Make>
bool are_widened(Make const& make) {
  serial_group<8> const group;
  staged_tile<Code, 6, 32> codes;
  staged_tile<widened_code<Code>, 2, 32> values[3];
  for (int row = 0; row < 6; ++row) {
    for (int token = 0; token < 32; ++token) {
      codes(row, value_slot(token)) = make((7 * row + 3 * token) % 31 - 15);
    }
  }
  code_widening<Code, serial_group<8>>::widen(group, codes, values);
  bool found = true;
  for (int row = 0; row < 6; ++row) {
    for (int token = 0; token < 32; ++token) {
      auto const expected = static_cast<float>((7 * row + 3 * token) % 31 - 15);
      found = found && load(values[row / 2](row % 2, token)) == expected;
    }
  }
  return found;
}

}  // namespace

TEST_CASE("codes in slots become operands in the order of tokens", "[host]") {
  CHECK(are_widened<float8_e4m3>([](int number) { return store<float8_e4m3>(static_cast<float>(number)); }));
  CHECK(are_widened<std::int8_t>([](int number) { return static_cast<std::int8_t>(number); }));
  CHECK(are_widened<float16>([](int number) { return store<float16>(static_cast<float>(number)); }));
  CHECK(are_widened<bfloat16>([](int number) { return store<bfloat16>(static_cast<float>(number)); }));
  CHECK(code_widening<float8_e4m3, serial_group<8>>::unit() == 1.0F);
}
