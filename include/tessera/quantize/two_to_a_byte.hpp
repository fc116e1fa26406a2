// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `two_to_a_byte<Q>`: a quantizer of 4 bits that stores two codes in a byte: of queries or keys, or of a row of a
/// matrix (tile/source/dequantized.hpp). The innermost adaptor.
///
///     using four = smoothed<smoothed<two_to_a_byte<symmetric_quantizer<4, per_thread>>>, block_mean>;
///     static_assert(std::is_same_v<stored_code<four>, int4x2>);
///
/// Codes, scales and laws are Q's, and results are the same to the last bit, since sums of products are exact either
/// way. Codes take half of the memory, and products of pairs are those of tile/gemm_operand.hpp. Without this adaptor
/// each code takes a byte, as the programs for sm_90a need.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/core/int4.hpp>

namespace tessera {
inline namespace v0 {

template <Quantizer Q>
struct two_to_a_byte : Q {
  static_assert(Q::bits == 4, "tessera: two_to_a_byte is for codes of 4 bits: symmetric_quantizer<4, a granularity>");
  static_assert(
      !requires { typename Q::quantizer_type; },
      "tessera: two_to_a_byte is the innermost adaptor: smoothed<two_to_a_byte<Q>>");
  /// The type that holds two codes, the first in the low bits.
  using pair_type = int4x2;
};

namespace detail {

template <Quantizer Q>
struct stored_code_of {
  using type = typename Q::code_type;
};
template <Quantizer Q>
requires requires {
  typename Q::pair_type;
}
struct stored_code_of<Q> {
  using type = typename Q::pair_type;
};

}  // namespace detail

/// The type that holds codes: Q's codes, or pairs where Q, or what it adapts, is two_to_a_byte.
template <Quantizer Q>
using stored_code = typename detail::stored_code_of<Q>::type;

}  // namespace v0
}  // namespace tessera
