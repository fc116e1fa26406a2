# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST primitives "#include <vector>\n\
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>\n#include <tessera/select/landmark.hpp>"
  quantize/asymmetric.hpp "std::vector<float> const& group"
  quantize/code_scale.hpp "float largest, float value"
  quantize/granularity.hpp "std::int64_t token, std::int64_t tokens"
  quantize/in_high_bits.hpp ""
  quantize/keep_mantissa.hpp "std::uint32_t bits"
  quantize/nearest_code.hpp ""
  quantize/sampled_range.hpp ""
  quantize/scaled_float.hpp "std::vector<float> const& channel"
  quantize/smoothed.hpp ""
  quantize/symmetric.hpp "std::vector<float> const& group"
  quantize/token_sample.hpp "std::int64_t length, std::vector<float> const& keys, void (*add)(float)"
  quantize/two_to_a_byte.hpp ""
  quantize/unscaled.hpp "float value"
  quantize/value_codec.hpp "")
