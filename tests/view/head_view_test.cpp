// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/view/head_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("heads are seen the same whether they or tokens come first in memory", "[host]") {
  std::vector<int> heads_first(2 * 3 * 4 * 5);
  std::vector<int> tokens_first(heads_first.size());
  head_view<int> const one(heads_first.data(), {2, 3, 4, 5});
  head_view<int> const other = head_view<int>(tokens_first.data(), {2, 4, 3, 5}).transposed(1, 2);
  for (std::int64_t i = 0; i < one.size(); ++i) {
    std::int64_t const b = i / 60;
    std::int64_t const head = i / 20 % 3;
    std::int64_t const token = i / 5 % 4;
    one(b, head, token, i % 5) = static_cast<int>(i);
    other(b, head, token, i % 5) = static_cast<int>(i);
  }
  CHECK(one.is_contiguous());
  CHECK(!other.is_contiguous());
  CHECK(one[1][2](3, 4) == 119);
  CHECK(other[1][2](3, 4) == 119);
  CHECK(tokens_first[(1 * 4 + 3) * 3 * 5 + 2 * 5 + 4] == 119);
}
