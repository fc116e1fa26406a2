// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <type_traits>

#include <tessera/view/attention_shape.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("extents of attention travel as bytes and are equal if all are", "[host]") {
  static_assert(std::is_trivially_copyable_v<attention_shape> && std::is_aggregate_v<attention_shape>);
  attention_shape const shape{2, 32, 8, 1, 4096, 128};
  CHECK(shape ==
        attention_shape{.batch = 2, .query_heads = 32, .key_heads = 8, .queries = 1, .keys = 4096, .channels = 128});
  for (std::int64_t attention_shape::*extent :
       {&attention_shape::batch, &attention_shape::query_heads, &attention_shape::key_heads, &attention_shape::queries,
        &attention_shape::keys, &attention_shape::channels}) {
    attention_shape other = shape;
    other.*extent += 1;
    CHECK_FALSE(other == shape);
  }
}

TEST_CASE("values have as many channels as keys, unless the shape says otherwise", "[host]") {
  attention_shape const shape{2, 32, 8, 1, 4096, 192};
  CHECK(shape.channels_of_values() == 192);
  CHECK(shape.has_equal_channels());
  CHECK(shape == attention_shape{2, 32, 8, 1, 4096, 192, 192});
  attention_shape const other{2, 32, 8, 1, 4096, 192, 128};
  CHECK(other.channels_of_values() == 128);
  CHECK_FALSE(other.has_equal_channels());
  CHECK_FALSE(other == shape);
}
