// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/quantize/asymmetric_half.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using tessera::asymmetric_half_quantizer;
using tessera::interval;
using tessera::load;
using tessera::testing::check_laws;

namespace asymmetric_half_test {

std::vector<float> values(float size, float middle) {
  std::vector<float> all;
  for (std::uint64_t i = 0; i < 200; ++i) {
    all.push_back(middle + size * tessera::testing::gauss().value(12, i));
  }
  return all;
}

}  // namespace asymmetric_half_test

static_assert(sizeof(tessera::asymmetric_half_params) == 4);
static_assert(load(asymmetric_half_quantizer<4>{}.fit(interval<float>{-5.0F, 10.0F}).scale) == 1.0F);

TEMPLATE_TEST_CASE("asymmetric quantizers with parameters in fp16 keep the laws", "[host]",
                   (asymmetric_half_quantizer<8, 64>), (asymmetric_half_quantizer<4, 32>),
                   (asymmetric_half_quantizer<3>), (asymmetric_half_quantizer<2>),
                   (asymmetric_half_quantizer<4, tessera::whole_tensor>)) {
  using asymmetric_half_test::values;
  for (float size : {1.0F, 1e-3F, 1e-7F, 1e-38F, 1e4F, 1e30F}) {
    CAPTURE(size);
    CHECK(check_laws<TestType>(values(size, 0.0F)).text().empty());
    CHECK(check_laws<TestType>(values(size, 100.0F)).text().empty());
  }
  CHECK(check_laws<TestType>(values(1e-3F, 6e4F)).text().empty());
  CHECK(check_laws<TestType>({1.0F, INFINITY}).text().empty());
  CHECK(check_laws<TestType>({1.0F, NAN}).text().empty());
}

TEST_CASE("the codes of parameters in fp16 reach both ends of a range", "[host]") {
  asymmetric_half_quantizer<2> const quantizer;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    tessera::testing::gauss const normal;
    float const low = 10.0F * normal.value(1, i);
    float const high = low + std::exp(2.0F * normal.value(2, i));
    auto const params = quantizer.fit(interval<float>{low, high});
    float const top = quantizer.decode(3, params);
    CAPTURE(low, high);
    CHECK(load(params.minimum) <= low);
    CHECK(load(params.minimum) >= low - std::fabs(low) * 0x1p-10F - 0x1p-24F);
    CHECK(top >= high);
    CHECK(top <= high + (high - low) * 0x1p-8F + std::fabs(low) * 0x1p-9F + 0x1p-22F);
  }
}

TEST_CASE("magnitudes above the largest of fp16 saturate", "[host]") {
  asymmetric_half_quantizer<8> const quantizer;
  auto const params = quantizer.fit(interval<float>{-1e30F, 1e30F});
  CHECK(quantizer.decode(quantizer.encode(-1e30F, params), params) == -65504.0F);
  CHECK(quantizer.decode(quantizer.encode(1e30F, params), params) == Approx(65504.0F).epsilon(0.002));
  CHECK(std::isinf(quantizer.max_error(params)));
}
