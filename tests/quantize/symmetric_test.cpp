// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using tessera::symmetric_params;
using tessera::symmetric_quantizer;
using tessera::testing::check_laws;

namespace {

std::vector<float> weights(float size) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 200; ++i) {
    values.push_back(size * tessera::testing::student_t{3.0, 1.0}.value(11, i));
  }
  return values;
}

}  // namespace

static_assert(symmetric_quantizer<8>::highest == 127 && symmetric_quantizer<4>::highest == 7);
static_assert(symmetric_quantizer<4, 32>{}.encode(-3.0F, symmetric_params{1.0F}) == -3);

TEMPLATE_TEST_CASE("symmetric quantizers keep the laws", "[host]", (symmetric_quantizer<8, 64>),
                   (symmetric_quantizer<4, 32>), (symmetric_quantizer<8, tessera::whole_tensor>)) {
  for (float size : {1.0F, 1e-3F, 1e-38F, 1e-44F, 1e30F}) {
    CAPTURE(size);
    CHECK(check_laws<TestType>(weights(size)).text().empty());
  }
  float const largest = std::numeric_limits<float>::max();
  CHECK(check_laws<TestType>({largest, -largest, 0.5F}).text().empty());
  CHECK(check_laws<TestType>({1.0F, -INFINITY}).text().empty());
  CHECK(check_laws<TestType>({1.0F, NAN}).text().empty());
}

TEST_CASE("the largest magnitude of a group gets the outermost code", "[host]") {
  symmetric_quantizer<8> const quantizer;
  auto const params = quantizer.fit(2.54F);
  CHECK(params.scale == Approx(0.02F));
  CHECK(quantizer.encode(2.54F, params) == 127);
  CHECK(quantizer.encode(-2.54F, params) == -127);
}

TEST_CASE("zero stays zero and signs are kept by symmetric codes", "[host]") {
  symmetric_quantizer<4> const quantizer;
  auto const params = quantizer.fit(0.9F);
  CHECK(quantizer.decode(quantizer.encode(0.0F, params), params) == 0.0F);
  CHECK(quantizer.encode(NAN, params) == 0);
  for (float value : weights(0.3F)) {
    CHECK(quantizer.encode(-value, params) == -quantizer.encode(value, params));
  }
}

TEST_CASE("a group of zeros has a usable scale", "[host]") {
  symmetric_quantizer<8> const quantizer;
  auto const params = quantizer.fit(0.0F);
  CHECK(params.scale > 0.0F);
  CHECK(quantizer.encode(0.0F, params) == 0);
}
