// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Cut Cross-Entropy: the loss of a language model's classifier, without its logits in memory.
///
/// Wijmans, Huval, Hertzberg, Koltun, Kraehenbuehl: "Cut Your Losses in Large-Vocabulary Language Models" (arXiv
/// 2411.09009). Logits are made tile by tile and reduced where they are made: memory grows with tokens + vocabulary
/// instead of tokens * vocabulary.
///
///     using loss = tessera::cut_cross_entropy;
///     tessera::cpu exec;
///     auto const plan = loss::plan(exec, {tokens, vocabulary, channels});
///     buffer<std::byte> memory(exec, plan.bytes());
///     loss::forward(exec, {hidden, classifier, labels}, {.shift = 1, .sequence = 2048}, {.loss = value},
///                   tessera::workspace(plan, memory));
///     exec.wait();
///
/// For token i with label x, hidden state e_i, classifier rows c_j, and q the wanted distribution:
///
///     A_ij   = cap(e_i . c_j + b_j) / temperature           cap(a) = softcap * tanh(a / softcap), if there is one
///     lse_i  = log sum_j exp(A_ij)
///     q_ij   = (1 - smoothing) [j = x] + smoothing / vocabulary
///     loss_i = weight_i (lse_i - sum_j q_ij A_ij + z_factor lse_i^2)
///     loss   = sum_i loss_i, or that / sum_i weight_i over tokens with a label; 0 where that is 0
///
/// Layouts: hidden states are tokens x channels, the classifier is vocabulary x channels; any extents and strides, of
/// which none need be multiples of anything; a batch of sequences is one list of tokens, and `sequence` says where it is
/// cut. Labels: std::int32_t or std::int64_t. Offsets are 64-bit; a vocabulary has at most 2^31 - 1 entries. Operands:
/// bf16 here; cut_cross_entropy_of<T> takes float16, float and tf32. Units: nats.
///
/// Precision: products of operands are exact (but of float), sums, logits and states are fp32, sums over tokens double.
/// Logits are never rounded to 16 bits. A token's loss is taken from largest - logit + log(sum relative to the
/// largest), none of which is small by cancellation, so a confident token's loss is right, and is never negative without
/// smoothing. What differs from the authors' code on purpose: the label's logit comes from the same sums as the
/// log-sum-exp, with the bias added once; labels are checked; no locks.
///
/// Labels: `ignore_index` counts for nothing. Another label outside of the vocabulary is never used as an index:
/// exec.wait() throws value_error with its position, outputs of its token and the reduced loss are NaN, other tokens are
/// as they would be without it. Infinite or NaN logits make the outputs of their token NaN; minus infinities (a masked
/// vocabulary, by the bias) count as probability 0.
///
/// Errors: shape_error and value_error that name the function and show both values. Nothing waits, allocates or learns
/// from the device how many tokens count: every call can be captured in a CUDA graph.
/// Determinism: the same bits each time. The portable program adds in an order that depends on the extents alone; it
/// gives the same bits for any number of threads. Between executors sums differ by rounding (tile/gemm_operand.hpp).
/// Cost of the forward pass: 2 * labelled tokens * vocabulary * channels operations, rounded up to tiles of 128;
/// plan.describe() says what each region of the workspace takes: with V over 16384 no more than 256 bytes a token and
/// 2 MiB, whatever V is.
#pragma once

#include <tessera/algorithm/linear_loss.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/gemm_tile.hpp>

namespace tessera {
inline namespace v0 {

/// The tile that the paper's code has, too. T: bfloat16, float16, float or tf32.
template <class T>
using loss_gemm_tile =
    gemm_tile<T, shape<128, 128, 32 / static_cast<int>(sizeof(typename gemm_operand<T>::value_type))>>;

/// Everything that a loss can tell: entropies, predictions, smoothed labels.
using loss_statistics =
    paired_reducer<entropy_reducer<float>, paired_reducer<arg_max_reducer<float>, sum_reducer<float>>>;

template <class T, class Reducer = lse_reducer<float>>
using cut_cross_entropy_of = linear_loss<loss_gemm_tile<T>, Reducer, gradient_filter<12>>;

/// The paper's method: bf16, blocks of 128 tokens x 128 entries.
using cut_cross_entropy = linear_loss<loss_gemm_tile<bfloat16>, lse_reducer<float>, gradient_filter<12>>;

}  // namespace v0
}  // namespace tessera
