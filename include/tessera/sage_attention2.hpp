// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SageAttention2: attention that multiplies queries and keys as 8-bit or 4-bit integers, and the softmax's weights and
/// values as 8-bit floats (e4m3).
///
/// Zhang, Huang, Zhang, Wei, Zhu, Chen: "SageAttention2: Efficient Attention with Thorough Outlier Smoothing and
/// Per-thread INT4 Quantization" (arXiv 2411.10958). The page docs/papers/sage_attention2.md has the paper's names,
/// differences from the authors' code, errors and limits.
///
///     #include <tessera/exec/buffer.hpp>
///     #include <tessera/exec/cpu.hpp>
///     #include <tessera/sage_attention2.hpp>
///
///     using method = tessera::sage_attention2;
///     tessera::cpu exec;
///     tessera::attention_shape const shape{batch, query_heads, key_heads, queries, keys, channels};
///     auto const plan = method::plan_forward(exec, shape);
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::attention_inputs<tessera::bfloat16> const inputs{q, k, v};
///     tessera::attention_outputs<tessera::bfloat16> const outputs{result, log_sum_exp};
///     method::forward(exec, inputs, {.is_causal = true}, outputs, tessera::workspace(plan, memory));
///     exec.wait();
///
/// Values may have other channels: {batch, query_heads, key_heads, queries, keys, 192, 128}.
///
/// With a tessera::cuda executor, in a source for nvcc, nothing else changes; algorithm/attention/attention.cuh says
/// what its fast programs do.
///
/// For query i and key j of a head, s is the scale (1 / sqrt(channels), or the user's). k is the mean key: a robust
/// mean (program/attention/channel_statistics.hpp) of all keys, or of a sample if there are 1024 keys or more. q is the
/// mean of the 128 queries of i's block, rounded to their type, which only sage_attention2_int4 subtracts; in
/// sage_attention2 it is 0.
///
///     S_ij  = s ((Q_i - q) . (K_j - k) + q . (K_j - k)) + bias_ij     the first product of codes, the second in fp32
///     O_i   = sum_j exp(S_ij) V_j / sum_j exp(S_ij)                   over the keys that i sees
///     lse_i = log sum_j exp(S_ij) + s Q_i . k                         the last term in fp32
///
/// Scales: one for each group of 2 queries and each group of 32 keys, which are the tokens of one thread of a tensor
/// core product (per_thread, quantize/granularity.hpp), and one for each channel of values. Weights exp(S_ij) become
/// e4m3 codes relative to the largest of a tile of 128 keys. Results are divided by the sum of the decoded codes, so
/// that they are weighted means of values. The sums of tiles are added up in fp32 (the paper's two-level accumulation).
/// A weight's code is made by one multiply-add, without an exponential (reduce/piecewise_linear_softmax.hpp): weights
/// are then within 3.1 % rms instead of the 2.6 % of rounded exponentials (online_softmax), which either method can
/// have. With 4 bits that is lost in the errors of scores. Formats of codes: program/attention/quantized_operands.hpp.
/// Order of operations: program/attention/quantized_forward.hpp.
///
/// Layouts: queries, keys, values and results are batch x heads x tokens x channels, of any strides (tokens before
/// heads: view.transposed(1, 2)), in bfloat16, float16 or float. The number of key heads divides that of query heads.
/// Channels (the head dimension): a multiple of 16 up to 256. Tokens: any number, 0 included. Lengths cut the sequences
/// of a padded batch; with lengths and starts, sequences are packed one behind the other (attention_inputs).
/// Masks: is_causal (aligned to the bottom right if there are fewer queries than keys), window_left, window_right, and
/// lists of the tiles of 64 queries x 128 keys that are seen: listed_tiles, or block_list, which runs in the portable
/// programs. A bias: linear_bias, dense_bias, or any function object of (sequence, head, query, key). `sinks` holds a
/// score for each head, which adds to the sum of weights but has no value. Queries and keys may come through functions,
/// such as a rotary embedding (attention_functions). Rows without keys are zeros with a log-sum-exp of minus infinity.
/// Few queries: several groups share the keys of a query, and their results are merged (split-KV). Up to 16 queries of
/// a sequence run in a decoding kernel on sm_90, in which all query heads of a key head share one read of its codes.
///
/// Kept codes: quantize() makes the codes of the inputs that it is given, and forward() of an attention_call attends
/// over them. Keys take channels + 0.125 bytes a token and values channels bytes, with float scales of 4 * channels
/// bytes a head: half of bf16. Keys of sage_attention2_int4 take channels / 2 + 0.125 bytes: 0.375 of bf16 with the
/// values.
/// INT4: sm_90 and later have no INT4 product, so that sage_attention2_int4 saves memory of kept codes there, not time.
/// On sm_90 codes are multiplied in bytes, by the programs of 8 bits: forward() of inputs makes bytes at once; a call
/// over kept codes widens them first, in each call, which takes 1.5 bytes of memory traffic for each code of a query or
/// a key. Its workspace has a region for that ("codes of queries and keys in bytes": channels bytes a token), and the
/// call gets it by widened(); without it pairs run in the portable program, which says so.
/// attention_score tells whether 4 bits are enough for a layer.
///
/// Relative L1 errors against double on a real layer of 512 tokens: 0.1462 of sage_attention2_int4, 0.0266 of
/// sage_attention2. With the mean of all keys in place of a sample's, sage_attention2_int4 has, and, in brackets, with
/// rounded exponentials and scales of values fitted to all tokens, too: 0.1368 (0.1367) there, 0.0123 (0.0122) on
/// normal data of 4096 keys of 128 channels with offsets and 0.0123 (0.0123) without, 0.0664 (0.0681) on generated
/// outliers of 2048 keys. sage_attention2 has 0.0030, 0.0035 and 0.0256 on the last three.
///
/// Infinities and NaNs: program/attention/quantized_operands.hpp. A NaN among queries makes the results of its group of
/// 2 queries NaN. A NaN among keys makes the results NaN of all queries that see any key of its group of 32 keys. A NaN
/// among values makes its channel of the head NaN. A score over 3e38 makes the result of its query NaN; with
/// smoothed queries or a bias one over 2e37 may do so on a GPU. Elements beyond the length of a sequence are never
/// read.
/// Errors: shape_error and value_error, which name the function and show both values. No call waits or allocates, so
/// that every call can be captured in a CUDA graph.
/// Determinism: the same bits each time and for any number of threads. Codes and scales are the same on every executor;
/// results differ by rounding. Samples depend on a sequence's length alone.
///
/// Cost: 4 * queries * keys * channels operations for each head, half of them in INT8, less the tiles that masks
/// exclude as a whole. Memory: plan.describe() says what each region takes, about channels * (queries of query heads +
/// 2.2 keys of key heads) bytes. For INT4 it is half of that for queries and 1.7 instead of 2.2, 4.125 bytes for every
/// 64 scores, and on sm_90 channels bytes more for each query and key. Few queries over many
/// keys take 4 bytes for each channel of at most 32768 rows.
#pragma once

#include <tessera/algorithm/attention/attention.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>

namespace tessera {
inline namespace v0 {

/// The paper's 8-bit method, which is the faster one on Hopper.
using sage_attention2 = attention<smoothed<symmetric_quantizer<8, per_thread>, sampled_mean>,
                                  sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;

/// The paper's 4-bit method, which subtracts mean queries as well.
using sage_attention2_int4 =
    attention<smoothed<smoothed<two_to_a_byte<symmetric_quantizer<4, per_thread>>, sampled_mean>, block_mean>,
              sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;

}  // namespace v0
}  // namespace tessera
