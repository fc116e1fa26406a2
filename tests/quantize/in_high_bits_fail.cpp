// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: in_high_bits is for codes of 4 bits
#include <tessera/quantize/in_high_bits.hpp>
#include <tessera/quantize/symmetric.hpp>

template <class Q>
constexpr int bits_of() {
  return Q::bits;
}

#if defined(TESSERA_FAIL)
static_assert(bits_of<tessera::in_high_bits<tessera::symmetric_quantizer<8, 64>>>() == 8);
#else
static_assert(bits_of<tessera::in_high_bits<tessera::symmetric_quantizer<4, 64>>>() == 4);
#endif
