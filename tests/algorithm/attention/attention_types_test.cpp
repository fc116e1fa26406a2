// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/algorithm/attention/attention_types.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a causal call sees no key behind a query's own, whatever its window says", "[host]") {
  CHECK(attention_options{}.keys_behind() == -1);
  for (std::int64_t const right : {-1, 0, 1, 1000}) {
    CHECK(attention_options{.window_right = right}.keys_behind() == right);
    CHECK(attention_options{.is_causal = true, .window_right = right}.keys_behind() == 0);
  }
}

TEST_CASE("attention reads and writes three types", "[host]") {
  CHECK(is_attention_type<bfloat16>);
  CHECK(is_attention_type<float16>);
  CHECK(is_attention_type<float>);
  CHECK_FALSE(is_attention_type<double>);
  CHECK_FALSE(is_attention_type<float const>);
}
