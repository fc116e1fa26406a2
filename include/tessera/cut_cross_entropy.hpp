// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Cut Cross-Entropy: the loss of a language model's classifier, and its gradients, without the logits in memory.
///
/// Wijmans, Huval, Hertzberg, Koltun, Kraehenbuehl: "Cut Your Losses in Large-Vocabulary Language Models" (arXiv
/// 2411.09009). Logits are made tile by tile and reduced where they are made: memory grows with tokens + vocabulary
/// instead of tokens * vocabulary. The paper's names, how its text was read, what differs from the authors' code,
/// precision in detail, limits and measurements: docs/papers/cut_cross_entropy.md.
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
///     loss_i = weight_i (lse_i - sum_j q_ij A_ij + z_factor lse_i^2)
///     loss   = sum_i loss_i, or that / sum_i weight_i over tokens with a label; 0 where that is 0
///
/// Backward: S is the softmax and H its entropy. u, h and k are the gradients of the result by loss_i, by lse_i and by
/// the entropy (loss_upstream: one for each token, u one for all where the loss is reduced; 1, 0 and 0 where not
/// given). With g_i = u weight_i:
///
///     G_ij = (g_i (S_ij - q_ij) + (h_i + 2 g_i z_factor lse_i) S_ij - k_i S_ij (log S_ij + H_i)) * slope of A_ij
///     hidden gradient = G C        classifier gradient = G^T E        bias gradient_j = sum_i G_ij
///
/// For reinforcement learning and distillation take `reduction = loss_reduction::none`: the loss of a token is then
/// minus the log-probability of its label, times its weight, and each token has an upstream gradient.
/// cut_cross_entropy_of<bfloat16, loss_statistics> also gives predictions, and entropies with upstream gradients of
/// their own. A Reducer of your own sees each logit and its place beside a log-sum-exp, as
/// paired_reducer<lse_reducer<float>, R>. On sm_90a the fast program takes Reducers whose state has at most 400 bytes
/// (is_for_warpgroups says so); for others the portable program runs, about 17 times as long.
///
/// Map of logits: a function of your own, of a logit, its token and its entry, with its derivative: a prior for each
/// entry, a temperature for each token. `cut_cross_entropy_of<bfloat16, lse_reducer<float>, M>` has an M among its
/// inputs (program/loss/logit_map.hpp); without one map(a) = a. It runs in the same programs. Kept softmaxes are for
/// logits without a map.
///
/// Filter: the backward pass leaves out a block of 128 tokens x 128 entries of the vocabulary where |S - q| is below a
/// threshold in all of it, tested before other factors: 2^-12 for bf16, 2^-15 for fp16, 2^-28 for fp32 and tf32. Each
/// of the two gradients has its threshold among the options. A NaN keeps its block; the bias is never filtered. The
/// hidden gradient of token i changes by at most |g_i| (sum of |S - q| left out) max_j |c_j|, and the classifier's row
/// j by at most threshold * sum_i |g_i| |e_i|. Rows of rare entries become zero, which is known to harm pre-training:
/// there take `classifier_threshold = 0` or exact_cross_entropy.
///
/// Layouts: hidden states are tokens x channels, the classifier is vocabulary x channels. Extents and strides are any,
/// and need not be multiples of anything. A batch of sequences is one list of tokens, which `sequence` cuts. Labels are
/// std::int32_t or std::int64_t. Offsets are 64-bit; a vocabulary has at most 2^31 - 1 entries. Operands are bf16 here;
/// cut_cross_entropy_of<T> takes float16, float and tf32. Losses, log-sum-exps and entropies are in nats.
///
/// Precision: logits and their sums are fp32, sums over tokens double. G is rounded to the type of the inputs;
/// gradients are summed in fp32 and rounded once. In our tests they are within 4e-3 of the truth for bf16 inputs
/// (length of the difference, relative), 3e-3 with fp32 gradients, 3e-6 for fp32 inputs; the bias gradient within twice
/// as much.
///
/// Labels: tokens with the label `ignore_index` count for nothing. A label that is outside of the vocabulary is never
/// used as an index: exec.wait() throws value_error with its position, the token's outputs and the reduced loss are
/// NaN, and for gradients the token is ignored. Tokens without a label have gradients of zero, whatever their hidden
/// states hold.
/// Infinities and NaNs: a NaN or a plus infinity among the logits makes the loss of its token NaN and its log-sum-exp
/// NaN or infinite. Gradients that depend on the token are NaN, on every executor at the same places: all of its hidden
/// gradient and that of the classifier. Minus infinities (a vocabulary masked by the bias) have probability 0; smoothed
/// labels make the loss infinite there, and a softcap makes them -softcap, with a probability.
///
/// Errors: shape_error and value_error, which name the function and show both values. A backward() whose workspace
/// holds no forward() of the same extents, reduction, options, inputs and plan (a workspace that was poisoned or
/// cleared, for one) gives gradients of NaN, and exec.wait() throws a value_error that says which of these differs. No
/// call waits, allocates or learns from the device how many tokens count, so that every call can be captured in a CUDA
/// graph.
/// Determinism: the same bits each time. The portable program adds in an order that depends on the extents alone, and
/// gives the same bits for any number of threads. The order of the program for sm_90a also depends on the number of
/// multiprocessors, and is another one in a workspace of plan_backward(). Between executors sums differ by rounding
/// (tile/gemm_operand.hpp).
///
/// Cost of the forward pass: 2 * labelled tokens * vocabulary * channels operations, rounded up to tiles of 128, and a
/// workspace of about 768 KiB for 8192 tokens, whatever the vocabulary is; plan.describe() says what each region takes.
/// In a workspace of plan_backward() the forward pass on sm_90a also leaves marks of the entries that can matter to the
/// filter, in tokens * vocabulary / 1024 bytes.
/// Cost of the backward pass: as many operations to make the logits again, and as many for each of the two gradients in
/// the blocks that are kept. The vocabulary is taken in parts, whose G is in the workspace: `workspace_budget` says how
/// much memory there is, and parts are about as large as it allows. Without a budget the whole workspace is at most 160
/// MiB, unless 32 MiB of G need more. With a larger budget, and with nothing left out, the forward pass on sm_90a may
/// keep 16-bit softmaxes, 2 bytes for each token and entry and 3 % more, whose logits are not made again. A backward()
/// uses the softmaxes up: the next one comes after another forward(), else gradients are NaN and exec.wait() throws
/// value_error.
#pragma once

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/loss/logit_map.hpp>
#include <tessera/program/loss/logit_reducer.hpp>
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

/// The Reducer for everything that a loss can tell: entropies, predictions, smoothed labels. On sm_90a it runs in the
/// program of log-sum-exps.
using loss_statistics =
    paired_reducer<entropy_reducer<float>, paired_reducer<arg_max_reducer<float>, sum_reducer<float>>>;

/// The paper's method for operands of T: bfloat16, float16, float or tf32. `Statistics` computes what else the
/// loss tells. Logits go through a Map.
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
