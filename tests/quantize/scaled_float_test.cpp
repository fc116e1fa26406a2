// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/quantize/scaled_float.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_laws;

namespace {

std::vector<float> values(float size) {
  std::vector<float> made;
  for (std::uint64_t i = 0; i < 100; ++i) {
    made.push_back(size * tessera::testing::gauss().value(3, i));
  }
  return made;
}

}  // namespace

static_assert(float8_quantizer<float8_e4m3>::highest == 448.0F && float8_quantizer<float8_e5m2>::highest == 57344.0F);
static_assert(scaled_float_quantizer<float16>::highest == 65504.0F);

TEMPLATE_TEST_CASE("quantizers to small floats keep the laws", "[host]", float8_quantizer<float8_e4m3>,
                   float8_quantizer<float8_e5m2>, scaled_float_quantizer<float16>) {
  for (float size : {1.0F, 1e-3F, 1e-25F, 1e-37F, 1e-44F, 1e30F}) {
    CAPTURE(size);
    CHECK(check_laws<TestType>(values(size)).text().empty());
  }
  float const largest = std::numeric_limits<float>::max();
  CHECK(check_laws<TestType>({largest, -largest, 0.5F}).text().empty());
  CHECK(check_laws<TestType>({1.0F, -INFINITY}).text().empty());
}

TEST_CASE("the largest magnitude becomes the format's, and a NaN stays one", "[host]") {
  float8_quantizer<float8_e4m3> const quantizer;
  auto const params = quantizer.fit(4.48F);
  CHECK(quantizer.encode(-4.48F, params).bits == 0xfe);
  CHECK(quantizer.decode(quantizer.encode(4.48F, params), params) == Approx(4.48F));
  CHECK(std::isnan(quantizer.decode(quantizer.encode(NAN, params), params)));
}
