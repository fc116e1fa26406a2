// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Cut Cross-Entropy: the loss of a language model's classifier, without its logits in memory.
///
/// Wijmans, Huval, Hertzberg, Koltun, Kraehenbuehl: "Cut Your Losses in Large-Vocabulary Language Models" (arXiv
/// 2411.09009). Logits are made tile by tile and reduced where they are made: memory grows with tokens + vocabulary
/// instead of tokens * vocabulary.
///
///     #include <tessera/cut_cross_entropy.hpp>
///     #include <tessera/exec/buffer.hpp>
///     #include <tessera/exec/cpu.hpp>
///
///     using loss = tessera::cut_cross_entropy;
///     tessera::cpu exec;
///     tessera::linear_loss_options const options{.shift = 1, .sequence = 2048};
///     auto const plan = loss::plan_backward(exec, {tokens, vocabulary, channels}, options);
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::workspace const space(plan, memory);
///     loss::inputs<std::int64_t> const inputs{hidden, classifier, labels};
///     loss::forward(exec, inputs, options, {.loss = value}, space);
///     tessera::linear_loss_gradients<tessera::bfloat16> const gradients{hidden_gradient, classifier_gradient};
///     loss::backward(exec, inputs, options, {}, gradients, space);
///     exec.wait();
///
/// With a tessera::cuda executor, in a source for nvcc, nothing else changes. A smaller plan for the forward pass alone
/// is plan().
///
/// For token i with label x, hidden state e_i, classifier rows c_j, and q the wanted distribution:
///
///     A_ij   = cap(e_i . c_j + b_j) / temperature           cap(a) = softcap * tanh(a / softcap), if there is one
///     lse_i  = log sum_j exp(A_ij)
///     q_ij   = (1 - smoothing) [j = x] + smoothing / vocabulary
///     loss_i = weight_i (lse_i - sum_j q_ij A_ij + z_factor lse_i^2)
///     loss   = sum_i loss_i, or that / sum_i weight_i over tokens with a label; 0 where that is 0
///
/// Backward, with S the softmax, H the entropy, u the gradient of the result by loss_i, h and k those by lse_i and the
/// entropy (loss_upstream: per token, or one for a reduced loss; 1 and 0 where not given), g_i = u weight_i:
///
///     G_ij = (g_i (S_ij - q_ij) + (h_i + 2 g_i z_factor lse_i) S_ij - k_i S_ij (log S_ij + H_i)) * slope of A_ij
///     hidden gradient = G C        classifier gradient = G^T E        bias gradient_j = sum_i G_ij
///
/// For reinforcement learning and distillation take `reduction = loss_reduction::none`: the loss is then minus the
/// log-probability of the label (times weight), with an upstream gradient for each token.
/// cut_cross_entropy_of<bfloat16, loss_statistics> also gives entropies, with upstream gradients of their own, and
/// predictions; a Reducer of your own sees each logit and its place beside a log-sum-exp, as
/// paired_reducer<lse_reducer<float>, R>. On sm_90a that costs 1 to 2 % of a forward pass and less than 1 % of both,
/// a Reducer of one's own what its push() costs (linear_loss.cuh), if its state has at most 400 bytes:
/// is_for_warpgroups says so, for others the portable program takes about 17 times as long.
///
/// The filter: the paper leaves a block of 128 tokens x 128 entries out where |S - [j = x]| < 2^-12 everywhere, tested
/// before other factors; its authors' code takes a 32nd of the operands' epsilon, which is 2^-12 for bf16, 2^-15 for
/// fp16 and 2^-28 for fp32 and tf32. So here, with q for [j = x] where labels are smoothed; thresholds of the two
/// gradients are options, the extents of blocks are the gradient_filter's. The rule's blocks are of tokens with a
/// label. A NaN keeps its block; the bias is never filtered. What is lost: the hidden gradient of token i changes by at
/// most |g_i| (sum of |S - q| left out) max_j |c_j|; the classifier's row j by at most threshold * sum_i |g_i| |e_i|,
/// and rows of rare entries become zero, which is known to harm pre-training: there take `classifier_threshold = 0` or
/// exact_cross_entropy. Gradients by lse and entropy are left out with their blocks.
/// On sm_90a, where no gradient of the bias is asked for and neither threshold is 0, entries are taken in the order of
/// how many blocks of tokens they can matter to (the paper sorts by the average logit), by marks that the forward pass
/// leaves; logits of entries that matter to no token are never made again. There a block of the rule is of 128
/// neighbouring tokens, with a label or without, and is multiplied, too, where the one beside it is kept. Other
/// programs take entries in their own order.
///
/// Layouts: hidden states are tokens x channels, the classifier is vocabulary x channels; any extents and strides, of
/// which none need be multiples of anything; a batch of sequences is one list of tokens, and `sequence` says where it
/// is cut. Labels: std::int32_t or std::int64_t. Offsets are 64-bit; a vocabulary has at most 2^31 - 1 entries.
/// Operands: bf16 here; cut_cross_entropy_of<T> takes float16, float and tf32. Units: nats.
///
/// Precision: products of operands are exact (but of float), sums, logits and states are fp32, sums over tokens double.
/// Logits are never rounded to 16 bits; softmaxes are where a budget lets the forward pass keep them, and then G is
/// rounded twice. A token's loss is taken from largest - logit + log(sum relative to the largest), none of which is
/// small by cancellation, so a confident token's loss is right, and is never negative without smoothing. G is rounded
/// once, to the type of the inputs (in fp16, where it could vanish or overflow, g, h and k of all tokens are first
/// divided by one number, with which the largest fills the range: what is 2^-29 of that keeps all bits, and the losses
/// of tokens have gradients as exact as their sum); gradients are summed in fp32, whatever their type, and rounded
/// once: with bf16 inputs they are within 4e-3 of the truth in our tests (length of the difference, relative), with
/// fp32 gradients 3e-3, in fp32 3e-6; that of the bias within twice as much, because sm_90a's programs sum G as it was
/// rounded. What differs from the authors' code on purpose: the label's logit comes from the same sums as the
/// log-sum-exp, with the bias added once; labels are checked; nothing is added up in 16 bits; no locks.
///
/// Labels: `ignore_index` counts for nothing. Another label outside of the vocabulary is never used as an index:
/// exec.wait() throws value_error with its position, outputs of its token and the reduced loss are NaN; for gradients
/// it is as if ignored. Tokens without a label have gradients of zero, whatever their hidden states hold. A NaN or a
/// plus infinity among the logits makes the loss of its token NaN, its log-sum-exp NaN or infinite, and gradients that
/// depend on it NaN, on every executor at the same places: all of the token's hidden gradient and that of the
/// classifier, for a filter keeps all blocks of such a token. An infinity in the classifier also meets gradients of 0,
/// in blocks that are not left out, and makes NaN there. Minus infinities (a masked vocabulary, by the bias) count as
/// probability 0; with smoothed labels they make the loss infinite. With a softcap
/// there are none, for it makes them -softcap, as it does in other code: a masked entry keeps a probability then.
///
/// Errors: shape_error and value_error that name the function and show both values. A backward() whose workspace holds
/// no forward() of the same extents, reduction, options, inputs and plan (a workspace that is poisoned or cleared, for
/// one) gives gradients of NaN, and exec.wait() throws value_error that says which of these it is. Nothing waits,
/// allocates or learns from the device how many tokens count: every call can be captured in a CUDA graph.
/// Determinism: the same bits each time. The portable program adds in an order that depends on the extents alone; it
/// gives the same bits for any number of threads. That for sm_90a depends on the number of multiprocessors, too, and
/// adds in another order in a workspace of plan_backward().
/// Between executors sums differ by rounding (tile/gemm_operand.hpp).
/// Cost of the forward pass: 2 * labelled tokens * vocabulary * channels operations, rounded up to tiles of 128;
/// plan.describe() says what each region of the workspace takes: 32 bytes a token and 8, or
/// the size of another Reducer's state, for each of at most max(6, 512 / (tokens / 128)) states; about 768 KiB for 8192
/// tokens, whatever V is. In a workspace of plan_backward() the forward pass on sm_90a also leaves marks of the entries
/// that can matter to the filter, in tokens * V / 1024 bytes. Of the backward pass: as many operations to make the
/// logits again, and for the blocks that are kept as many for each of the two gradients. It takes the vocabulary in
/// parts, whose G is in the workspace: `workspace_budget` says how much memory there is, and the parts are about as
/// large as it allows; without one all of the workspace is at most 160 MiB, unless 32 MiB of G need more. Several parts
/// also need 2 bytes for each element of 16-bit hidden gradients, whose sums stay fp32 from part to part: the upper
/// halves lie in the result. A filtered pass on sm_90a needs a copy of a part's rows of the classifier and about 10
/// bytes for each entry. With memory no logits are made again: where nothing is left out, labels are not smoothed and
/// the reducer has no entropy_reducer, the forward pass on sm_90a keeps softmaxes of 16 bits of as many entries as fit
/// into the budget beside the usual 160 MiB, or of all, which takes 2 bytes for each token and entry and 3 % more. A
/// backward() uses them up: the next one comes after another forward(), else gradients are NaN and exec.wait() throws
/// value_error.
#pragma once

#include <tessera/algorithm/loss/linear_loss.hpp>
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

/// The tile of logits: 128 tokens x 128 entries, as in the paper's code. T: bfloat16, float16, float or tf32.
template <class T>
using loss_gemm_tile =
    gemm_tile<T, shape<128, 128, 32 / static_cast<int>(sizeof(typename gemm_operand<T>::value_type))>>;

/// Everything that a loss can tell: entropies, predictions, smoothed labels. On sm_90a by the program of log-sum-exps.
using loss_statistics =
    paired_reducer<entropy_reducer<float>, paired_reducer<arg_max_reducer<float>, sum_reducer<float>>>;

/// The paper's method for operands of T: bfloat16, float16, float or tf32; `Reducer` makes what else a loss can tell.
template <class T, class Reducer = lse_reducer<float>>
using cut_cross_entropy_of =
    linear_loss<loss_gemm_tile<T>, Reducer, gradient_filter_for<typename gemm_operand<T>::value_type>>;

/// The paper's method: bf16, blocks of 128 tokens x 128 entries, of which nothing reaches 2^-12.
using cut_cross_entropy = cut_cross_entropy_of<bfloat16>;

/// The method without a filter: nothing is left out of gradients.
template <class T, class Reducer = lse_reducer<float>>
using exact_cross_entropy_of = linear_loss<loss_gemm_tile<T>, Reducer, gradient_filter<0>>;
/// The method without a filter, in bf16.
using exact_cross_entropy = exact_cross_entropy_of<bfloat16>;

}  // namespace v0
}  // namespace tessera
