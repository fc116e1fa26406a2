// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/int4.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using plain = symmetric_quantizer<4, per_thread>;
using pairs = two_to_a_byte<plain>;
using of_both = smoothed<smoothed<pairs>, block_mean>;

static_assert(std::is_same_v<stored_code<plain>, std::int8_t> && std::is_same_v<stored_code<pairs>, int4x2>);
static_assert(std::is_same_v<stored_code<smoothed<plain>>, std::int8_t> &&
              std::is_same_v<stored_code<of_both>, int4x2>);
static_assert(std::is_same_v<pairs::code_type, std::int8_t>, "a code is a number, wherever it lies");
static_assert(has_mean_of_tokens<of_both> && is_smoothed_by<block_mean, of_both> && of_both::bits == 4);

}  // namespace

TEST_CASE("where codes lie changes none of them", "[host]") {
  std::vector<float> const values{-3.0F, 0.25F, 2.5F, 1e9F, 0.0F, -0.1F};
  CHECK(testing::check_laws<pairs>(values).text().empty());
  for (float const value : values) {
    CHECK(pairs::encode_scaled(value, 2.0F) == plain::encode_scaled(value, 2.0F));
  }
}
