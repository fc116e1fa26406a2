// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/view/cache_inputs.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("inputs of a cache are found by their layer, and by whether they are keys or values", "[host]") {
  std::vector<float> const memory{0, 1, 2, 3};
  auto const view = [&](std::int64_t at) { return head_view<float const>(memory.data() + at, {1, 1, 1, 1}); };
  cache_inputs<float> const inputs{{view(0), view(1)}, {view(2), view(3)}};
  STATIC_REQUIRE(key_part != value_part);
  CHECK(inputs.part(0, key_part)(0, 0, 0, 0) == 0.0F);
  CHECK(inputs.part(1, key_part)(0, 0, 0, 0) == 1.0F);
  CHECK(inputs.part(0, value_part)(0, 0, 0, 0) == 2.0F);
  CHECK(inputs.part(1, value_part)(0, 0, 0, 0) == 3.0F);
  CHECK(&inputs.part(1, value_part) == &inputs.values[1]);
}

TEST_CASE("inputs that are not given have no memory", "[host]") {
  cache_inputs<float> const none{};
  for (int layer = 0; layer < 2; ++layer) {
    CHECK(none.part(layer, key_part).data == nullptr);
    CHECK(none.part(layer, value_part).data == nullptr);
    CHECK(none.part(layer, key_part).extent(2) == 0);
  }
}
