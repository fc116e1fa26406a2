// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/quantize/unscaled.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"
#include "support/log_scalar.hpp"

using namespace tessera;
using tessera::testing::check_laws;

TEMPLATE_TEST_CASE("scalars without scales keep the laws of quantizers", "[host]", float8_e4m3, float8_e5m2, float16,
                   bfloat16, tessera_test::log_scalar) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 100; ++i) {
    values.push_back(testing::gauss{.sigma = 30.0}.value(3, i));
  }
  CHECK(check_laws<unscaled_quantizer<TestType>>(values).text() == "");
  float const largest = std::numeric_limits<float>::max();
  CHECK(check_laws<unscaled_quantizer<TestType>>({largest, -largest, 0.5F}).text() == "");
}

TEST_CASE("values beyond the largest scalar saturate, and a NaN stays one", "[host]") {
  unscaled_quantizer<float8_e4m3> const quantizer;
  CHECK(quantizer.decode(quantizer.encode(1e9F, {}), {}) == 448.0F);
  CHECK(quantizer.decode(quantizer.encode(-INFINITY, {}), {}) == -448.0F);
  CHECK(quantizer.decode(quantizer.encode(1.0625F, {}), {}) == 1.0F);  // a tie, to even
  CHECK(std::isnan(quantizer.decode(quantizer.encode(NAN, {}), {})));
}
