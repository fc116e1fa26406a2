// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip: weights in two thirds of their memory, bit for bit, or in less with fewer mantissa bits.
///
/// Hao, Cao, Mou: "NeuZip: Memory-Efficient Training and Inference with Dynamic Compression of Neural Networks" (arXiv 2410.20650).
#pragma once

#include <tessera/algorithm/compressed_weights.hpp>

namespace tessera {
inline namespace v0 {

/// Lossless weights of any of the five formats.
template <class T>
using neuzip_of = compressed_weights<exponent_split<T>, rans_coder<12>, keep_mantissa<scalar_traits<T>::mantissa_bits>>;

/// The paper's codec: bf16, exponents through rANS, all seven mantissa bits.
using neuzip = compressed_weights<exponent_split<bfloat16>, rans_coder<12>, keep_mantissa<7>>;

/// Lossy: K mantissa bits of each weight, K = 0, 1, 3 (or 7 of fp16 and fp32).
template <int K, class T = bfloat16>
using neuzip_lossy = compressed_weights<exponent_split<T>, rans_coder<12>, keep_mantissa<K>>;

/// Lossless with four bits for every exponent: 12 bits a bf16 weight, decoded at the speed of memory.
template <class T>
using neuzip_fixed = compressed_weights<exponent_split<T>, fixed_coder, keep_mantissa<scalar_traits<T>::mantissa_bits>>;

}  // namespace v0
}  // namespace tessera
