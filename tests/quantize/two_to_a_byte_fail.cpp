// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: two_to_a_byte is the innermost adaptor
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>

template <class Q>
constexpr int bits_of() {
  return Q::bits;
}

using four = tessera::symmetric_quantizer<4, 64>;

#if defined(TESSERA_FAIL)
static_assert(bits_of<tessera::two_to_a_byte<tessera::smoothed<four>>>() == 4);
#else
static_assert(bits_of<tessera::smoothed<tessera::two_to_a_byte<four>>>() == 4);
#endif
