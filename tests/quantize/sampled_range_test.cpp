// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using e4m3 = float8_quantizer<float8_e4m3>;
using sampled = sampled_range<e4m3>;

template <class Q>
int wrong_about_room() {
  int wrong = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    float const reciprocal = std::fabs(testing::gauss{}.value(3, i)) * 100.0F + 1.0F;
    float const magnitude = std::fabs(testing::gauss{}.value(4, i)) * Q::highest / reciprocal;
    auto const code = Q::encode_scaled(magnitude, reciprocal);
    bool const is_below = load(code) < Q::highest;
    // Half way to the largest code either is nearest; that counts as beyond.
    wrong += Q::has_room(magnitude, reciprocal) == is_below || magnitude * reciprocal == Q::limit ? 0 : 1;
  }
  return wrong;
}

}  // namespace

static_assert(range_sample<e4m3>.longest_step == 1 && range_sample<sampled>.longest_step == 16);
static_assert(range_sample<smoothed<sampled, sampled_mean>>.longest_step == 16);
static_assert(sampled::limit == 432.0F && sampled_range<float8_quantizer<float8_e5m2>>::limit == 53248.0F);

TEST_CASE("a quantizer with a sampled range is one of the same codes", "[host]") {
  CHECK(testing::check_laws<sampled>({0.5F, -1.0F, 3.0F}).text().empty());
  CHECK(testing::check_laws<smoothed<sampled, sampled_mean>>({0.5F, -1.0F, 3.0F}).text().empty());
}

TEST_CASE("there is room for what gets a code below the largest", "[host]") {
  CHECK(wrong_about_room<sampled>() == 0);
  CHECK(wrong_about_room<sampled_range<float8_quantizer<float8_e5m2>>>() == 0);
  CHECK(wrong_about_room<sampled_range<scaled_float_quantizer<float16>>>() == 0);
}

TEST_CASE("a scale of zeros has room for zeros, and that of a NaN for zeros alone", "[host]") {
  CHECK(sampled::has_room(0.0F, 0.0F));
  CHECK_FALSE(sampled::has_room(1e-45F, 0.0F));
  CHECK_FALSE(sampled::has_room(NAN, 1.0F));
  CHECK_FALSE(sampled::has_room(INFINITY, 1e-38F));
}

TEST_CASE("the largest code stands for four times the largest magnitude, and never for an infinity", "[host]") {
  CHECK(with_room(3.0F, sampled::room) == 12.0F);
  CHECK(with_room(0.0F, sampled::room) == 0.0F);
  CHECK(std::isnan(with_room(NAN, sampled::room)));
  CHECK(std::isfinite(with_room(3e38F, sampled::room)));
  CHECK(fit_scale(with_room(3e38F, sampled::room), 448.0F).reciprocal > 0.0F);
}
