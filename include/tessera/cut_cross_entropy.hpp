// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Cut Cross-Entropy: the loss of a language model's classifier, and its gradients, without the logits in memory.
///
/// Wijmans, Huval, Hertzberg, Koltun, Kraehenbuehl: "Cut Your Losses in Large-Vocabulary Language Models" (arXiv
/// 2411.09009). Logits are computed tile by tile and reduced at once, so that memory grows with tokens + vocabulary
/// instead of tokens * vocabulary. The page docs/papers/cut_cross_entropy.md has the paper's names, differences from
/// the authors' code, precision and cost in detail, limits and measurements.
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
/// With a tessera::cuda executor, in a source for nvcc, nothing else changes. plan_forward() plans a smaller workspace,
/// for the forward pass alone.
///
/// For token i with label x, hidden state e_i, classifier rows c_j, bias b_j, and q the target distribution:
///
///     A_ij   = map(cap(e_i . c_j + b_j) / temperature)      cap(a) = softcap * tanh(a / softcap), if there is one
///     lse_i  = log sum_j exp(A_ij)
///     q_ij   = (1 - smoothing) [j = x] + smoothing / vocabulary
///     w_i    = weight_i class_weight_x
///     loss_i = w_i (lse_i - sum_j q_ij A_ij + z_factor lse_i^2)
///     loss   = sum_i loss_i, or that / sum_i w_i over tokens with a label; 0 where that is 0
///
/// Backward: S is the softmax and H its entropy. u, h and k are the gradients of the result by loss_i, by lse_i and by
/// the entropy (loss_upstream: one for each token, u one for all where the loss is reduced; 1, 0 and 0 where not
/// given). With g_i = u w_i:
///
///     G_ij = (g_i (S_ij - q_ij) + (h_i + 2 g_i z_factor lse_i) S_ij - k_i S_ij (log S_ij + H_i)) * slope of A_ij
///     hidden gradient = G C        classifier gradient = G^T E        bias gradient_j = sum_i G_ij
///
/// For reinforcement learning and distillation take `reduction = loss_reduction::none`: the loss of a token is then
/// minus the log-probability of its label, times its weight, and each token has an upstream gradient.
///
/// Other statistics: cut_cross_entropy_of<bfloat16, loss_statistics> also gives predictions, and entropies with
/// upstream gradients of their own. A Reducer of your own gets each logit with its coordinates, beside a log-sum-exp,
/// as paired_reducer<lse_reducer<float>, R>. On sm_90a the fast program takes Reducers whose state has at most 400
/// bytes (is_for_warpgroups), that of other GPUs 112 bytes. For others the portable program runs, which takes about 17
/// times as long as sm_90a's.
///
/// Map of logits: a function of your own of a logit, its token and its entry, with its derivative, for example a prior
/// for each entry or a temperature for each token. `cut_cross_entropy_of<bfloat16, lse_reducer<float>, M>` has an M
/// among its inputs (concepts/logit_map.hpp); by default map(a) = a. A map runs in the same programs, but softmaxes
/// are kept only for logits without a map.
///
/// Weights: both kinds are 1 where they are not given. A class weight multiplies the whole loss of a token whose label
/// is that entry. Without smoothing that is PyTorch's cross_entropy(weight = ...), also in its mean. With smoothing it
/// is not: PyTorch weighs the smoothed part of each token by the weights of all entries, s / V sum_j class_weight_j
/// (lse_i - A_ij), and here that part, too, has the weight of the label.
///
/// Filter: the backward pass leaves out a block of 128 tokens x 128 entries of the vocabulary if |S - q| is below a
/// threshold in the whole block: 2^-12 for bf16, 2^-15 for fp16, 2^-28 for fp32 and tf32. Each of the two gradients has
/// its own threshold among the options. A block with a NaN is kept; the bias is never filtered. Rows of rare entries
/// become zero, which is known to harm pre-training: there take `classifier_threshold = 0` or exact_cross_entropy. The
/// page has bounds on the change of gradients.
///
/// Layouts: hidden states are tokens x channels, the classifier is vocabulary x channels. Extents and strides are any,
/// and need not be multiples of anything. A batch of sequences is one list of tokens, which `sequence` cuts. Labels are
/// std::int32_t or std::int64_t. Offsets are 64-bit; a vocabulary has at most 2^31 - 1 entries. Operands are bf16 here;
/// cut_cross_entropy_of<T> takes float16, float and tf32. Losses, log-sum-exps and entropies are in nats. A classifier
/// of another type than hidden states, or of fp8 codes with scales: algorithm/loss/with_classifier.hpp.
///
/// Precision: logits and their sums are in fp32, sums over tokens in double. G is rounded to the type of the inputs;
/// gradients are summed in fp32 and rounded once. Gradients in fp32 may be added to those of batches before: see
/// linear_loss_gradients::accumulate_hidden.
///
/// Labels: tokens with the label `ignore_index` do not count. A label outside of the vocabulary is never used as an
/// index: exec.wait() throws value_error with its position, the token's outputs and the reduced loss are NaN, and for
/// gradients the token is ignored. Tokens without a label have gradients of zero, whatever their hidden states hold.
///
/// Infinities and NaNs: a NaN or a plus infinity among the logits makes the loss of its token NaN and its log-sum-exp
/// NaN or infinite. Gradients that depend on the token are NaN, on every executor in the same elements: all of its
/// hidden gradient and that of the classifier. A minus infinity (an entry that the bias masks) has probability 0, and
/// makes the loss infinite where labels are smoothed. A softcap makes it -softcap, so that the entry is not masked.
/// Where softmaxes are kept (see Memory), elements may differ from other executors' in two cases: under a softcap, an
/// infinity among the hidden states or in the classifier may give infinite gradients in place of NaNs; and with logits
/// beyond 10^8 (10^6 in fp16) gradients may be infinite or NaN in place of numbers.
///
/// Errors: shape_error and value_error, which name the function and show both values. If the workspace of a backward()
/// does not hold a forward() of the same extents, reduction, options, inputs and plan, gradients are NaN and
/// exec.wait() throws a value_error that says which of these differs. No call waits, allocates memory or reads from the
/// device how many tokens count, so that every call can be captured in a CUDA graph.
///
/// Determinism: the same bits each time, and in the portable program for any number of threads. Between executors sums
/// differ by rounding (tile/gemm_operand.hpp).
///
/// Memory: a forward pass of 8192 tokens takes about 768 KiB, whatever the vocabulary is. A backward pass takes at most
/// `workspace_budget`, by default 160 MiB, or what 32 MiB of G need. With a larger budget, and with nothing left out,
/// the forward pass on a GPU may keep 16-bit softmaxes, which the next backward() uses up: another backward() needs
/// another forward(). With a small one, as 10 MiB for 8192 tokens, backward() uses memory of gradients that it has not
/// written yet (detail/gradients_apart.hpp). plan.describe() says what each region takes, and the page counts
/// operations and bytes.
#pragma once

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/gemm_tile.hpp>

namespace tessera {
inline namespace v0 {

/// The tile of logits: 128 tokens x 128 entries, as in the paper's code. T: bfloat16, float16, float or tf32.
template <class T>
using loss_gemm_tile =
    gemm_tile<T, shape<128, 128, 32 / static_cast<int>(sizeof(typename gemm_operand<T>::value_type))>>;

/// The Reducer for all statistics that a loss can give: entropies, predictions, smoothed labels. On sm_90a it runs in
/// the fast program.
using loss_statistics =
    paired_reducer<entropy_reducer<float>, paired_reducer<arg_max_reducer<float>, sum_reducer<float>>>;

/// The paper's method for operands of T: bfloat16, float16, float or tf32. Statistics: the Reducer of rows of logits,
/// for further outputs. Map: a LogitMap, which changes logits before the softmax.
template <class T, LogitReducer Statistics = lse_reducer<float>, LogitMap Map = identity_logits>
using cut_cross_entropy_of =
    linear_loss<loss_gemm_tile<T>, Statistics, gradient_filter_for<typename gemm_operand<T>::value_type>, Map>;

/// The paper's method: bf16; blocks of 128 tokens x 128 entries in which nothing reaches 2^-12 are left out of
/// gradients.
using cut_cross_entropy = cut_cross_entropy_of<bfloat16>;

/// The method without a filter: nothing is left out of gradients.
template <class T, LogitReducer Statistics = lse_reducer<float>, LogitMap Map = identity_logits>
using exact_cross_entropy_of = linear_loss<loss_gemm_tile<T>, Statistics, gradient_filter<0>, Map>;
/// The method without a filter, in bf16.
using exact_cross_entropy = exact_cross_entropy_of<bfloat16>;

}  // namespace v0
}  // namespace tessera
