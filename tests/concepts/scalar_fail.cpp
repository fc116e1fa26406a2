// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Scalar has scalar_traits<T> with bits, exponent_bits, mantissa_bits
#include <tessera/concepts/scalar.hpp>

template <tessera::Scalar T>
struct row {
  T* values;
};

#if defined(TESSERA_FAIL)
row<int> values;
#else
row<tessera::bfloat16> values;
#endif
