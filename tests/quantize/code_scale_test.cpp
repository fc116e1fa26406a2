// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

static_assert(fit_scale(254.0F, 127.0F).scale == 2.0F && fit_scale(254.0F, 127.0F).reciprocal == 0.5F);

TEST_CASE("a group of zeros has a scale and a reciprocal of zero, and so its codes are", "[host]") {
  CHECK(fit_scale(0.0F, 127.0F).scale == 0.0F);
  CHECK(fit_scale(0.0F, 127.0F).reciprocal == 0.0F);
  CHECK(symmetric_quantizer<8>::encode_scaled(-0.0F, 0.0F) == 0);
  CHECK(float8_quantizer<float8_e4m3>::encode_scaled(-0.0F, 0.0F).bits == 0);
}

TEST_CASE("a group with a NaN has a scale of NaN and codes of zero", "[host]") {
  auto const fitted = fit_scale(NAN, 448.0F);
  CHECK(std::isnan(fitted.scale));
  CHECK(fitted.reciprocal == 0.0F);
  CHECK(symmetric_quantizer<8>::encode_scaled(NAN, fitted.reciprocal) == 0);
  CHECK(symmetric_quantizer<4>::encode_scaled(INFINITY, fitted.reciprocal) == 0);
  CHECK(float8_quantizer<float8_e4m3>::encode_scaled(NAN, fitted.reciprocal).bits == 0);
  CHECK(float8_quantizer<float8_e4m3>::encode_scaled(-INFINITY, fitted.reciprocal).bits == 0);
}

TEST_CASE("scales and reciprocals are finite and the largest magnitude gets the outermost code", "[host]") {
  for (float largest = 0x1p-140F; largest < 3.4e38F; largest *= 1.37F) {
    auto const eight = fit_scale(largest, 127.0F);
    CHECK((std::isnormal(eight.scale) && std::isnormal(eight.reciprocal)));
    auto const small = fit_scale(largest, 448.0F);
    CHECK((std::isnormal(small.scale) && std::isnormal(small.reciprocal)));
    if (largest > 1e-35F) {
      CHECK(symmetric_quantizer<8>::encode_scaled(-largest, eight.reciprocal) == -127);
      CHECK(load(float8_quantizer<float8_e4m3>::encode_scaled(largest, small.reciprocal)) == 448.0F);
    }
  }
}

TEST_CASE("codes by the reciprocal are those by division, but next to the middle between two", "[host]") {
  symmetric_quantizer<8> const quantizer;
  int differ = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    float const largest = std::fabs(testing::gauss().value(1, i)) + 0.1F;
    float const value = largest * testing::uniform{-1.0, 1.0}.value(2, i);
    auto const fitted = fit_scale(largest, 127.0F);
    int const by_product = quantizer.encode_scaled(value, fitted.reciprocal);
    int const by_division = quantizer.encode(value, {fitted.scale});
    differ += by_product == by_division ? 0 : 1;
    float const moved = std::fabs(value - static_cast<float>(by_product) * fitted.scale);
    CHECK(moved <= quantizer.max_error({fitted.scale}));
  }
  CHECK(differ <= 2);
}
