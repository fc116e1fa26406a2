// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/store_values.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("values become a chunk of a tile, rounded to the nearest, or zeros outside", "[host]") {
  float const values[8] = {0.0F, -1.0F, 0.1F, 65504.0F, 1e-7F, 1.0F + 0x1p-8F, 1.0F + 0x1p-11F, 3.0F};
  serial_group<32> const group{};
  tile_chunk<bfloat16> wide{};
  tile_chunk<float16> narrow{};
  store_values<bfloat16>(group, values, true, wide);
  store_values<float16>(group, values, true, narrow);
  for (int i = 0; i < 8; ++i) {
    CHECK(wide.values[i] == store<bfloat16>(values[i]));
    CHECK(narrow.values[i] == store<float16>(values[i]));
  }
  store_values<bfloat16>(group, values, false, wide);
  for (bfloat16 const value : wide.values) {
    CHECK(value == bfloat16{0});
  }
}
