// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/quantize/asymmetric.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using tessera::asymmetric_quantizer;
using tessera::interval;
using tessera::testing::check_laws;

namespace {

std::vector<float> values(float size, float middle) {
  std::vector<float> all;
  for (std::uint64_t i = 0; i < 200; ++i) {
    all.push_back(middle + size * tessera::testing::gauss().value(12, i));
  }
  return all;
}

}  // namespace

static_assert(asymmetric_quantizer<8>::highest == 255 && asymmetric_quantizer<4>::highest == 15);
static_assert(asymmetric_quantizer<4>{}.fit(interval<float>{-5.0F, 10.0F}).scale == 1.0F);

TEMPLATE_TEST_CASE("asymmetric quantizers keep the laws", "[host]", (asymmetric_quantizer<8, 64>),
                   (asymmetric_quantizer<4, 32>), (asymmetric_quantizer<3>), (asymmetric_quantizer<2>),
                   (asymmetric_quantizer<4, tessera::whole_tensor>)) {
  for (float size : {1.0F, 1e-3F, 1e-38F, 1e-44F, 1e30F}) {
    CAPTURE(size);
    CHECK(check_laws<TestType>(values(size, 0.0F)).text().empty());
    CHECK(check_laws<TestType>(values(size, 100.0F)).text().empty());
  }
  CHECK(check_laws<TestType>(values(1e-3F, 1e6F)).text().empty());
  CHECK(check_laws<TestType>({1.0F, INFINITY}).text().empty());
  CHECK(check_laws<TestType>({1.0F, NAN}).text().empty());
}

TEST_CASE("both ends of a range get the outermost codes", "[host]") {
  asymmetric_quantizer<8> const quantizer;
  auto const params = quantizer.fit(interval<float>{-0.3F, 4.8F});
  CHECK(quantizer.encode(-0.3F, params) == 0);
  CHECK(quantizer.encode(4.8F, params) == 255);
  CHECK(quantizer.decode(0, params) == -0.3F);
  CHECK(quantizer.decode(255, params) == Approx(4.8F));
}

TEST_CASE("a group of equal values comes back exactly", "[host]") {
  asymmetric_quantizer<4> const quantizer;
  for (float value : {0.0F, 1.0F, -3.7F, 1e-42F, 1e38F, -1e38F}) {
    auto const params = quantizer.fit(interval<float>{value, value});
    CHECK(quantizer.encode(value, params) == 0);
    CHECK(quantizer.decode(0, params) == value);
  }
}

TEST_CASE("an empty range has usable parameters", "[host]") {
  asymmetric_quantizer<4> const quantizer;
  auto const params = quantizer.fit(quantizer.range().identity());
  CHECK(params.scale > 0.0F);
  CHECK(params.minimum == 0.0F);
}
