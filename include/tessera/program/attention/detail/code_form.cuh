// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `code_form`: what codes of queries and keys encode_tiles writes, and how they lie in memory: e4m3 in bytes, or
/// integers in bytes, in the high bits of bytes (quantize/in_high_bits.hpp), or two to a byte
/// (quantize/two_to_a_byte.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/in_high_bits.hpp>
#include <tessera/tile/cuda/bytes.cuh>

namespace tessera {
inline namespace v0 {

/// How codes lie in memory.
struct code_form {
  int highest;     ///< the largest code
  int step;        ///< the distance between codes: 1, or 16 for those in high bits
  int in_byte;     ///< codes of a byte: 1 or 2
  bool is_float8;  ///< whether codes are float8_e4m3; `step` is then 1

  /// The form of a method's codes of queries and keys.
  template <class Method>
  [[nodiscard]] TESSERA_FN static constexpr code_form of() {
    using quantizer = typename Method::score_quantizer;
    using code = typename Method::score_code;
    return {static_cast<int>(quantizer::highest), code_step<quantizer>, codes_in<code>,
            std::is_same_v<code, float8_e4m3>};
  }
  /// The factor of a value whose nearest integer is its code in steps, given that of its code.
  [[nodiscard]] TESSERA_FN constexpr float factor_of(float reciprocal) const {
    return step == 1 ? reciprocal : reciprocal * (1.0F / static_cast<float>(step));
  }

  friend constexpr bool operator==(code_form const&, code_form const&) = default;
};

/// The type of a code before it is stored.
template <code_form Form>
using code_of_form = std::conditional_t<Form.is_float8, float8_e4m3, std::int8_t>;

/// Stores the codes of eight channels, which are codes in steps in eight bytes. `to`: where they begin.
template <code_form Form>
__device__ __forceinline__ void store_codes(std::int8_t* to, uint2 codes) {
  if constexpr (Form.in_byte == 2) {
    std::uint32_t const first = codes.x & 0x0f0f0f0fU;
    std::uint32_t const last = codes.y & 0x0f0f0f0fU;
    store_here(reinterpret_cast<std::uint32_t*>(to), pick_bytes(first | first >> 4, last | last >> 4, 0x6420));
  } else if constexpr (Form.step == 16) {
    store_here(reinterpret_cast<uint2*>(to), {codes.x << 4 & 0xf0f0f0f0U, codes.y << 4 & 0xf0f0f0f0U});
  } else {
    static_assert(Form.step == 1, "tessera: codes lie in bytes, in high bits of bytes, or two to a byte");
    store_here(reinterpret_cast<uint2*>(to), codes);
  }
}

}  // namespace v0
}  // namespace tessera
