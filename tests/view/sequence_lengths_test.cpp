// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/view/sequence_lengths.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a sequence is never longer than its extent, nor shorter than nothing", "[host]") {
  std::vector<std::int32_t> const lengths{-1, 0, 1, 99, 100, 101, 0x7fffffff, -0x7fffffff - 1};
  std::vector<std::int64_t> const expected{0, 0, 1, 99, 100, 100, 100, 0};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    CHECK(length_of(lengths, static_cast<std::int64_t>(i), 100) == expected[i]);
    CHECK(length_of({}, static_cast<std::int64_t>(i), 100) == 100);
    CHECK(length_of(lengths, static_cast<std::int64_t>(i), 0) == 0);
  }
}
