// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: quantized_codec takes quantizers of neighbouring values, without means, samples or granularities of tokens
#include <tessera/algorithm/paged_cache/quantized_codec.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>

using quantizer = tessera::symmetric_quantizer<8, 64>;

#if defined(TESSERA_FAIL)
tessera::quantized_codec<tessera::smoothed<quantizer>> codec;
#else
tessera::quantized_codec<quantizer> codec;
#endif
