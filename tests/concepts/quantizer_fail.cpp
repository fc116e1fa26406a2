// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Quantizer has range\(\) const, a Reducer that takes in float
#include <tessera/quantize/symmetric.hpp>

/// Its range is a number, not a Reducer.
struct with_fixed_range {
  using code_type = signed char;
  using params_type = float;
  static constexpr int group = 64;
  float range() const { return 1.0F; }
  params_type fit(float range) const { return range; }
  code_type encode(float value, params_type) const { return static_cast<code_type>(value); }
  float decode(code_type code, params_type) const { return code; }
};

template <tessera::Quantizer Q>
struct quantized_cache {
  Q quantizer;
};

#if defined(TESSERA_FAIL)
quantized_cache<with_fixed_range> cache;
#else
quantized_cache<tessera::symmetric_quantizer<8, 64>> cache;
#endif
