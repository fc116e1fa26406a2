// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip: compressed weights, in two thirds of their memory bit for bit, or in less with fewer mantissa bits.
///
/// Hao, Cao, Mou: "NeuZip: Memory-Efficient Training and Inference with Dynamic Compression of Neural Networks" (arXiv
/// 2410.20650). The exponents of trained weights carry 2.5 to 2.9 bits of information, so they are entropy-coded; signs
/// and mantissas are stored uncoded (section 2.1), or only the first bits of the mantissas are kept (section 2.3).
///
///     #include <tessera/exec/cpu.hpp>
///     #include <tessera/neuzip.hpp>
///
///     tessera::cpu exec;
///     auto stream = tessera::neuzip::encode(exec, weights);   // weights: anything with data(), size() of bfloat16
///     tessera::neuzip::decode(exec, stream, weights);           // the same bits
///
/// What differs from the authors' code, on purpose: all five formats are lossless for every bit pattern, NaN payloads
/// included. Rounding never makes a finite weight infinite or a NaN a number. The same rounded normalizer divides and
/// multiplies, with one rounding each way. Sizes are 64-bit. Calls with a workspace neither wait nor allocate. The
/// coder works on pairs of exponents, at 10.67 bits for a bf16 N(0, 0.02) weight instead of 10.9.
///
/// Errors with K mantissa bits kept: a normal number changes by at most 1 / (2^(K+1) + 1) of its value (K = 0: 1/3, 1:
/// 1/5, 3: 1/17, 7: 1/257). Numbers above the largest number with so few bits become that number; they change by less
/// than 1 / 2^(K+1). Subnormals change by at most half of 2^-K of the smallest normal number. Normalizers add a
/// rounding to the type (2^-8 of bf16, 2^-11 of fp16, 2^-24 of fp32, and the bound times as much), and the quotients
/// may be subnormal: numbers below twice the smallest normal number change by up to 2^-K of that number, which for K =
/// 0 can be as much as their own value. In fp16 this concerns one of two hundred weights if their standard deviation is
/// 0.02: scale such weights first.
///
/// Weights whose exponents spread over more than fifteen neighbours, such as second moments of Adam, take 16 bits with
/// this coder. For such weights take another coder: compressed_weights<exponent_split<bfloat16>, tans_coder,
/// keep_mantissa<7>>.
///
/// Damage: a stream for a disk or a network should have a checksum for each block, by {.checksums = true} in encode()
/// or spec(): 4 bytes for up to 8192 weights. Without them a changed bit of a sign or a mantissa makes another weight.
///
/// Determinism: the stream depends on weights, options and seed alone, not on executor, device or threads.
/// Format: entropy/weight_stream.hpp. Interface, errors and costs: algorithm/weights/compressed_weights.hpp. To keep a
/// model's parameters compressed during training (the paper's Algorithm 1, with the gradient of the inputs computed
/// before the update, as in the paper's text, not its listing): algorithm/weights/parameter_store.hpp.
#pragma once

#include <tessera/algorithm/weights/compressed_weights.hpp>

namespace tessera {
inline namespace v0 {

/// The lossless codec of weights in any of the five formats.
template <class T>
using neuzip_of = compressed_weights<exponent_split<T>, rans_coder<12>, keep_mantissa<scalar_traits<T>::mantissa_bits>>;

/// The paper's codec: bf16, exponents through rANS, all seven mantissa bits.
using neuzip = compressed_weights<exponent_split<bfloat16>, rans_coder<12>, keep_mantissa<7>>;

/// The lossy codec: K mantissa bits of each weight, K = 0, 1, 3 (or 7 for fp16 and fp32), which take about 3.7, 4.7 and
/// 6.7 bits a weight.
template <int K, class T = bfloat16>
using neuzip_lossy = compressed_weights<exponent_split<T>, rans_coder<12>, keep_mantissa<K>>;

/// The lossless codec with four bits for every exponent, 12 bits a bf16 weight, for kernels that cannot afford a table.
template <class T>
using neuzip_fixed = compressed_weights<exponent_split<T>, fixed_coder, keep_mantissa<scalar_traits<T>::mantissa_bits>>;

}  // namespace v0
}  // namespace tessera
