// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/core/float8.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/value_codec.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A Quantizer that has a number of its own.
struct with_state : symmetric_quantizer<8, 64> {
  int level = 3;
};
/// A user's own, without one.
struct without_state : symmetric_quantizer<8, 64> {};
/// Empty, but no Quantizer.
struct nothing {};

}  // namespace

TEST_CASE("values are coded by a quantizer without state, or not at all", "[host]") {
  STATIC_REQUIRE(ValueCodec<exact_values>);
  STATIC_REQUIRE(ValueCodec<symmetric_quantizer<4, 64>>);
  STATIC_REQUIRE(ValueCodec<asymmetric_quantizer<2, 32>>);
  STATIC_REQUIRE(ValueCodec<scaled_float_quantizer<float8_e4m3, 128>>);
  STATIC_REQUIRE(ValueCodec<without_state>);
  STATIC_REQUIRE_FALSE(Quantizer<exact_values>);
  STATIC_REQUIRE(Quantizer<with_state>);
  STATIC_REQUIRE_FALSE(ValueCodec<with_state>);
  STATIC_REQUIRE_FALSE(ValueCodec<nothing>);
  STATIC_REQUIRE_FALSE(ValueCodec<float>);
}
