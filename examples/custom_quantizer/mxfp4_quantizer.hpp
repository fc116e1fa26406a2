// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `mxfp4_quantizer`: 4-bit floats (a sign, 2 bits of exponent, 1 of mantissa) of which 32 share a power of two, as in
/// the OCP Microscaling Formats specification 1.0.
#pragma once

#include <cstdint>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/reduce/absolute_maximum.hpp>

namespace tessera_examples {

/// A scale in E8M0: 2^(exponent - 127), with exponents 1 to 252 here.
struct mxfp4_scale {
  std::uint8_t exponent;
};

/// The scale is the smallest with which no value is beyond 6, the largest code; the specification leaves the choice
/// open. encode() rounds to nearest, ties to the even code; NaN becomes 0, infinities the largest code.
struct mxfp4_quantizer {
  using code_type = std::uint8_t;  // the sign in bit 3, the number of one of the eight magnitudes below it
  using params_type = mxfp4_scale;
  static constexpr int group = 32;

  TESSERA_FN constexpr tessera::absolute_maximum_reducer<float> range() const { return {}; }

  TESSERA_FN constexpr params_type fit(float largest) const {
    // The least e with largest <= 6 * 2^e: the bits of largest / 6, rounded up to a power of two.
    std::uint32_t const bits = tessera::bit_cast<std::uint32_t>(largest / highest);
    std::uint32_t const exponent = (bits + 0x7fffffU) >> 23U;
    return {static_cast<std::uint8_t>(exponent < 1U ? 1U : exponent > 252U ? 252U : exponent)};
  }

  TESSERA_FN constexpr code_type encode(float value, params_type params) const {
    float const scaled = value / scale(params);
    float const magnitude = scaled < 0.0F ? -scaled : scaled;
    // Halfway between two magnitudes, the one with an even code results.
    int code = 0;
    code += magnitude > 0.25F ? 1 : 0;
    code += magnitude >= 0.75F ? 1 : 0;
    code += magnitude > 1.25F ? 1 : 0;
    code += magnitude >= 1.75F ? 1 : 0;
    code += magnitude > 2.5F ? 1 : 0;
    code += magnitude >= 3.5F ? 1 : 0;
    code += magnitude > 5.0F ? 1 : 0;
    return static_cast<code_type>(scaled < 0.0F && code > 0 ? code | 8 : code);
  }

  TESSERA_FN constexpr float decode(code_type code, params_type params) const {
    int const which = code & 7;
    float const magnitude =
        which < 5 ? 0.5F * static_cast<float>(which) : static_cast<float>(which == 7 ? 6 : which - 2);
    return (code & 8) != 0 ? -magnitude * scale(params) : magnitude * scale(params);
  }

  /// The largest error: half of the widest step, from 4 to 6; twice as much where the scale would have to be larger
  /// than it can be.
  TESSERA_FN constexpr float max_error(params_type params) const {
    return scale(params) * (params.exponent == 252U ? 2.0F : 1.0F);
  }

 private:
  static constexpr float highest = 6.0F;
  TESSERA_FN static constexpr float scale(params_type params) {
    return tessera::bit_cast<float>(static_cast<std::uint32_t>(params.exponent) << 23U);
  }
};

static_assert(tessera::Quantizer<mxfp4_quantizer>);

}  // namespace tessera_examples
