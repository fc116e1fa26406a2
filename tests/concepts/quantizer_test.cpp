// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/core/math.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using tessera::Quantizer;
using tessera::testing::check_laws;

namespace quantizer_test {

/// A user's own Quantizer: the sign of a value, and the largest magnitude of its group.
struct sign_quantizer {
  using code_type = std::int8_t;
  using params_type = float;
  static constexpr int group = 32;
  constexpr tessera::absolute_maximum_reducer<float> range() const { return {}; }
  constexpr params_type fit(float largest) const { return tessera::is_finite(largest) ? largest : 1.0F; }
  constexpr code_type encode(float value, params_type params) const {
    return static_cast<code_type>(params == 0.0F || value == 0.0F ? 0 : (value < 0 ? -1 : 1));
  }
  constexpr float decode(code_type code, params_type params) const { return static_cast<float>(code) * params; }
};

/// Its codes move up by one each time.
struct drifting : sign_quantizer {
  constexpr code_type encode(float value, float) const {
    return static_cast<code_type>(tessera::clamp(value, -100.0F, 100.0F)) + 1;
  }
  constexpr float decode(code_type code, float) const { return code; }
};

struct reversing : sign_quantizer {
  constexpr float decode(code_type code, float params) const { return -sign_quantizer::decode(code, params); }
};

/// Forgets the group of zeros.
struct dividing_by_zero : sign_quantizer {
  constexpr float decode(code_type code, float params) const {
    return static_cast<float>(code) * params / (params == 0.0F ? 1e-45F : params) / params;
  }
};

struct promising_too_much : sign_quantizer {
  constexpr float max_error(float params) const { return params / 8; }
};

struct without_group {
  using code_type = std::int8_t;
  using params_type = float;
};

static_assert(Quantizer<sign_quantizer>);
static_assert(!Quantizer<without_group>);
static_assert(!Quantizer<tessera::absolute_maximum_reducer<float>>);

std::vector<float> const values{-2.0F, -0.5F, 0.0F, 0.25F, 1.0F, 2.0F};

}  // namespace quantizer_test

using namespace quantizer_test;

TEST_CASE("a user's own quantizer keeps the laws", "[host]") {
  auto const report = check_laws<sign_quantizer>(values);
  INFO(report.text());
  CHECK(report.is_empty());
}

TEST_CASE("an encode that is not idempotent is caught", "[host]") {
  CHECK(check_laws<drifting>(values).mentions("encode is idempotent"));
}

TEST_CASE("a quantizer that turns the order round is caught", "[host]") {
  CHECK(check_laws<reversing>(values).mentions("encode and decode keep order"));
}

TEST_CASE("a quantizer that divides by the scale of an empty group is caught", "[host]") {
  CHECK(check_laws<dividing_by_zero>(values).mentions("decoded values are finite: an empty group"));
}

TEST_CASE("a quantizer whose error is larger than it says is caught", "[host]") {
  CHECK(check_laws<promising_too_much>(values).mentions("no value is moved by more than max_error"));
}
