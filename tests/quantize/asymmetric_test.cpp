// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/quantize/asymmetric.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using tessera::asymmetric_half_quantizer;
using tessera::asymmetric_quantizer;
using tessera::interval;
using tessera::load;
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
static_assert(sizeof(tessera::asymmetric_params<tessera::float16>) == 4);
static_assert(load(asymmetric_half_quantizer<4>{}.fit(interval<float>{-5.0F, 10.0F}).scale) == 1.0F);

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

TEMPLATE_TEST_CASE("asymmetric quantizers with parameters in fp16 keep the laws", "[host]",
                   (asymmetric_half_quantizer<8, 64>), (asymmetric_half_quantizer<4, 32>),
                   (asymmetric_half_quantizer<3>), (asymmetric_half_quantizer<2>),
                   (asymmetric_half_quantizer<4, tessera::whole_tensor>),
                   (asymmetric_quantizer<4, 32, tessera::bfloat16>)) {
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

TEST_CASE("parameters in fp16 are the nearest ones from which codes reach the whole range", "[host]") {
  asymmetric_half_quantizer<3> const quantizer;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    tessera::testing::gauss const normal;
    float const size = std::exp(6.0F * normal.value(5, i));
    float const low = size * normal.value(6, i);
    float const high = low + size * std::fabs(normal.value(7, i));
    auto const params = quantizer.fit(interval<float>{low, high});
    float const minimum = load(params.minimum);
    float const scale = load(params.scale);
    double const least =
        std::max({(std::min(high, 65504.0F) - minimum) / 7.0, std::max(-minimum, high) * 0x1p-21, 0x1p-24});
    CAPTURE(low, high);
    if (std::fabs(low) < 60000.0F && std::fabs(high) < 60000.0F) {
      CHECK(minimum <= low);
      CHECK(std::nextafter(low, -INFINITY) <= minimum + std::fabs(minimum) * 0x1p-10F + 0x1p-24F);
      CHECK(double{scale} >= least * (1.0 - 0x1p-22));
      CHECK(double{scale} <= least * (1.0 + 0x1p-10) + 0x1p-24);
    }
  }
}
