// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SageAttention2: attention whose scores are products of 8-bit or 4-bit integers, and whose values and weights have 8
/// bits.
///
/// Zhang, Huang, Zhang, Wei, Zhu, Chen: "SageAttention2: Efficient Attention with Thorough Outlier Smoothing and
/// Per-thread INT4 Quantization" (arXiv 2411.10958).
///
///     #include <tessera/exec/buffer.hpp>
///     #include <tessera/exec/cpu.hpp>
///     #include <tessera/sage_attention2.hpp>
///
///     using method = tessera::sage_attention2;
///     tessera::cpu exec;
///     tessera::attention_shape const shape{batch, query_heads, key_heads, queries, keys, channels};
///     auto const plan = method::plan(exec, shape);
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::attention_inputs<tessera::bfloat16> const inputs{q, k, v};
///     tessera::attention_outputs<tessera::bfloat16> const outputs{result, log_sum_exp};
///     method::forward(exec, inputs, {.is_causal = true}, outputs, tessera::workspace(plan, memory));
///     exec.wait();
///
/// For query i and key j of a head, scale s (1 / sqrt(channels), or the user's), k the mean key (a mean of middles,
/// program/attention/channel_statistics.hpp; of a sample of them where there are 1024 or more), q the mean of the 64
/// queries of i's block, which sage_attention2_int4 subtracts, too (else 0):
///
///     S_ij  = s ((Q_i - q) . (K_j - k) + q . (K_j - k)) + bias_ij     the first product of codes, the second in fp32
///     O_i   = sum_j exp(S_ij) V_j / sum_j exp(S_ij)                   over the keys that i sees
///     lse_i = log sum_j exp(S_ij) + s Q_i . k                         the last term in fp32
///
/// Queries and keys are coded in groups of 2 and 32 tokens that one thread of a tensor core's product meets
/// (per_thread, quantize/granularity.hpp), values in channels. Weights exp(S_ij) become e4m3 codes relative to the
/// largest of a tile of 128 keys, not of all keys so far, and results are divided by the sum of what the codes stand
/// for, so that they are weighted means of values; sums of a tile are added up in fp32 (the paper's two-level
/// accumulation). sage_attention2 makes a weight's code by one multiply-add, without an exponential: codes of e4m3 are
/// nearly the logarithm of what they stand for (reduce/piecewise_linear_softmax.hpp); weights are then within 3.1 % rms
/// instead of 2.6 %. sage_attention2_int4 rounds exponentials (online_softmax), as either method can. Formats:
/// program/attention/quantized_operands.hpp. Order of all that: program/attention/quantized_forward.hpp.
///
/// What differs from the authors' code on purpose: in sequences of 1024 tokens or more the mean key is that of a sample
/// of 512 keys or more, and scales of values are fitted to such a sample, with room, and to all values where that is
/// not enough (quantize/token_sample.hpp, sampled_range.hpp): softmax(S + c) = softmax(S) for any constant c of a row,
/// so that whatever vector is subtracted from all keys changes no weight, and keys and values are read once, not twice
/// (smoothed<Q> without sampled_mean and float8_quantizer without sampled_range take all tokens); three keys too large
/// and three too small in every 128 do not move the mean key (keys that share a scale with an outlier still lose their
/// precision to it); causal masks are aligned to the bottom right, for queries that are fewer than keys; the
/// log-sum-exp's correction is in fp32; means are of a sequence's own tokens; channels of zeros are zeros and rows
/// without keys are zeros with a log-sum-exp of minus infinity; offsets are 64-bit; no padded copies of inputs; the
/// reference of weights is a tile's own, so that nothing underflows behind an attention sink.
///
/// Layouts: queries, keys, values and results are batch x heads x tokens x channels of any strides (tokens before
/// heads: view.transposed(1, 2)), bfloat16, float16 or float. Key heads divide query heads. Channels: a multiple of 16
/// up to 256. Any number of tokens, 0 included. Lengths cut the sequences of a padded batch; with starts, too,
/// sequences lie one behind the other (attention_inputs). Masks: is_causal, window_left, window_right, block_list
/// (which tiles of 64 queries x 128 keys there are), and a bias, any function object of (sequence, head, query, key).
/// `sinks`: a score for each head that takes weight and has no value. Queries and keys may come through functions, such
/// as a rotary embedding (attention_functions). Where queries are few, groups share their keys, and what they have is
/// merged; up to 16 queries a sequence are for decoding: on sm_90 all query heads of a key head take one read of its
/// codes.
///
/// Codes may be made once and kept: quantize() makes those of the inputs that it is given, and forward() of an
/// attention_call attends over them. Keys and values take channels + 0.125 and channels bytes a token, with float
/// scales of 4 * channels bytes a head: half of bf16. Keys of sage_attention2_int4 take channels / 2 + 0.125: 0.375 of
/// bf16.
///
/// INT4: codes of sage_attention2_int4 lie in pairs, two to a byte, and results are those of codes in bytes, to the
/// last bit. Its products are the portable program's: INT4's own on sm_80 to sm_89; bytes, to which registers are
/// widened, on sm_90 and later, which have no INT4 product (tile/cuda/gemm_tile.cuh says at what cost): there it is for
/// less memory, not for speed. A method of 4 bits that is not two_to_a_byte and does not smooth queries runs in the
/// programs for sm_90a, as INT8. Whether 4 bits are enough for a layer: attention_score.
///
/// Accuracy, relative L1 error against double, bf16 in and out (tests/sage_attention2_test.cpp): normal data with
/// offsets in 6 % of channels of queries and keys and in all of values, 4096 keys, 0.0029; a real model's layer with
/// large outliers, 512 tokens, causal, 0.027 (INT4 0.137), of which 0.020 is that of the scores: there smoothing
/// queries, too, gives 0.018. bf16 results alone are 0.0014. smoothed<float8_quantizer<float8_e4m3>> for values helps
/// where their channels lie away from zero.
///
/// Infinities and NaNs: program/attention/quantized_operands.hpp. A NaN among queries makes the results of its group of
/// 2 NaN; one among keys those of the queries that see any key of its group of 32; one among values its channel of the
/// head. A score over 3e38 makes its row NaN. What lies beyond the length of a sequence is never looked at.
///
/// Errors: shape_error and value_error that name the function and show both values. Nothing waits or allocates: every
/// call can be captured in a CUDA graph. Determinism: the same bits each time and for any number of threads; codes and
/// scales are the same on every executor, results differ by rounding. Samples depend on a sequence's length alone.
///
/// With a tessera::cuda executor, in a source for nvcc, nothing else changes; algorithm/attention/attention.cuh says
/// what its fast programs do.
///
/// Cost: 4 * queries * keys * channels operations a head, half of them in INT8, less what masks leave out in whole
/// tiles. The portable quantization reads keys and values at most twice from memory, and samples: codes are made of 128
/// tokens at a time, which are looked at twice; sage_attention2_int4 reads keys for codes and, once for every 4096
/// queries of the heads that share them, for scores of mean queries. plan.describe() says what each region takes: about
/// channels * (queries of query heads + 2.2 keys of key heads) bytes, for INT4 half of that for queries and 1.7 instead
/// of 2.2, and 4 bytes for every 64 scores; and for few queries of many keys 4 bytes for each channel of at most 32768
/// rows.
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

/// The paper's 8-bit method, which is that for Hopper.
using sage_attention2 = attention<smoothed<symmetric_quantizer<8, per_thread>, sampled_mean>,
                                  sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;

/// The paper's 4-bit method, with mean queries subtracted as well; scales of values are those of all tokens.
using sage_attention2_int4 =
    attention<smoothed<smoothed<two_to_a_byte<symmetric_quantizer<4, per_thread>>, sampled_mean>, block_mean>,
              float8_quantizer<float8_e4m3>, online_softmax<float>>;

}  // namespace v0
}  // namespace tessera
