// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `float8_attention`: attention over e4m3 codes of queries, keys and values, FlashAttention-3's method for 8-bit floats.
///
/// Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao: "FlashAttention-3: Fast and Accurate Attention with Asynchrony and
/// Low-precision" (arXiv 2407.08608), section 3.3: a scale for each group of tokens, and products of both steps by the
/// tensor cores' 8-bit floats.
///
///     using method = tessera::float8_attention;
///     auto const plan = method::plan_forward(exec, shape);
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     method::forward(exec, inputs, {.is_causal = true}, outputs, tessera::workspace(plan, memory));
///
/// Its calls, layouts, masks, errors, determinism and costs are those of sage_attention2 (tessera/sage_attention2.hpp),
/// from which it differs in the codes of queries and keys alone.
///
/// From the paper it differs in these: groups are smaller, 2 queries and 32 keys (per_thread) instead of a block of
/// each, and a channel of values; outliers that all keys have are met by subtracting the mean key, which leaves results
/// as they are, instead of multiplying queries and keys by a random orthogonal matrix; and codes of weights are made
/// without exponentials. The paper's exponentials are those of attention<..., ..., online_softmax<float>>.
///
/// e4m3 codes have 4 significant bits and a range of 2^18. Errors of scores are thus relative to each number, not to
/// the group's largest one: int8 codes are about 4 times as exact for normal numbers, e4m3 codes are the better ones
/// where a few channels of a token exceed the others by far and queries do not see them.
///
/// On sm_90a it runs in the program of sage_attention2 (program/attention/quantized_forward.cuh), biases, smoothed
/// queries and lists of tiles included, with fewer instructions: sums of products are floats already. Tensor cores cut
/// products off at 13 bits below the largest addend, so that a score is short by up to 2^-14 of itself for each
/// channel; scores of products of either sign lose far less than their codes do. Up to 16 queries run in this program,
/// too, where sage_attention2 has one that reads keys once for all query heads that share them: on an H200, with 32
/// query heads of 8 key heads and 65536 keys, one query takes 128 us instead of 44, and 16 queries 131 instead of 109.
#pragma once

#include <tessera/algorithm/attention/attention.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>

namespace tessera {
inline namespace v0 {

/// Attention over e4m3 codes of all operands.
using float8_attention = attention<smoothed<scaled_float_quantizer<float8_e4m3, per_thread>, sampled_mean>,
                                   sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;

}  // namespace v0
}  // namespace tessera
