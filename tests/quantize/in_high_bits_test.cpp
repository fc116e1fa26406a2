// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/in_high_bits.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/attention_quantizer.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using plain = symmetric_quantizer<4, per_thread>;
using in_high = in_high_bits<plain>;

static_assert(std::is_same_v<stored_code<in_high>, std::int8_t> && in_high::highest == 112 && in_high::bits == 4);
static_assert(code_step<in_high> == 16 && code_step<smoothed<smoothed<in_high>, block_mean>> == 16 &&
              code_step<plain> == 1);

std::vector<float> values(float size) {
  std::vector<float> made;
  for (std::uint64_t i = 0; i < 300; ++i) {
    made.push_back(size * testing::gauss().value(5, i));
  }
  return made;
}

}  // namespace

TEST_CASE("codes in high bits keep the laws of quantizers of scores", "[host]") {
  for (float const size : {1e-20F, 0.1F, 300.0F}) {
    CHECK(testing::check_laws<in_high>(values(size)).text().empty());
    CHECK(testing::check_score_laws<in_high>(values(size)).text().empty());
  }
}

TEST_CASE("codes in high bits are sixteen times the others, and stand for the same values", "[host]") {
  for (float const size : {1e-30F, 0.1F, 1e30F}) {
    for (float const value : values(size)) {
      code_scale const of_plain = fit_scale(3 * size, static_cast<float>(plain::highest));
      code_scale const of_high = fit_scale(3 * size, static_cast<float>(in_high::highest));
      auto const code = plain::encode_scaled(value, of_plain.reciprocal);
      CHECK(16 * code == in_high::encode_scaled(value, of_high.reciprocal));
      CHECK(static_cast<float>(code) * of_plain.scale == static_cast<float>(16 * code) * of_high.scale);
      CHECK(in_high().decode(in_high().encode(value, in_high().fit(size)), in_high().fit(size)) ==
            plain().decode(plain().encode(value, plain().fit(size)), plain().fit(size)));
    }
  }
}
