// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a sampled_range is one of floats: room for larger values costs integers their precision
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>

float room() {
#if defined(TESSERA_FAIL)
  using of_values = tessera::sampled_range<tessera::symmetric_quantizer<8>>;
#else
  using of_values = tessera::sampled_range<tessera::float8_quantizer<tessera::float8_e4m3>>;
#endif
  return of_values::room;
}
