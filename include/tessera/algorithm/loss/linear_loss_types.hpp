// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The types of calls of algorithm/loss/linear_loss.hpp: the filter of gradients, extents, options, inputs, outputs and
/// gradients.
///
///     linear_loss_options options;
///     options.reduction = loss_reduction::sum;
///     options.softcap = 30.0F;
#pragma once

#include <cstdint>

#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The filter of the backward pass: it may leave out blocks of Rows tokens x Columns entries of the vocabulary in which
/// the softmax and the target distribution differ by less than 2^-Bits everywhere. With Bits = 0 it leaves nothing out.
/// Blocks are at most as large as the tile of the loss and divide it.
template <int Bits, int Rows = 128, int Columns = 128>
struct gradient_filter {
  static_assert(Bits >= 0 && Bits <= 60 && Rows > 0 && Columns > 0,
                "tessera: a gradient_filter has 0 to 60 bits and blocks that are not empty");
  /// 2^-Bits; 0: nothing is left out.
  static constexpr float threshold = Bits == 0 ? 0.0F : 1.0F / static_cast<float>(std::int64_t{1} << Bits);
  static constexpr int rows = Rows;        ///< tokens of a block
  static constexpr int columns = Columns;  ///< entries of a block
};

/// The paper's filter for operands that are stored as T. Its authors' threshold is 1/32 of T's epsilon: 2^-12 for bf16,
/// 2^-15 for fp16, 2^-28 for fp32.
template <Scalar T>
using gradient_filter_for = gradient_filter<scalar_traits<T>::mantissa_bits + 5>;

/// How the losses of tokens are reduced.
enum class loss_reduction {
  none,  ///< a loss for each token
  sum,   ///< the sum of weighted losses
  mean,  ///< the sum of weighted losses / the sum of weights (token times label); 0 if these sum to 0
};

/// The extents of a problem.
struct linear_loss_shape {
  std::int64_t tokens;      ///< rows of hidden states
  std::int64_t vocabulary;  ///< rows of the classifier
  std::int64_t channels;    ///< numbers of a hidden state: its dimension
};

/// Which entries of the vocabulary a rank's rows of the classifier are, where these are spread over ranks
/// (vocabulary_parallel.hpp): those from the first one on, as many as it has rows, which may be none.
struct vocabulary_part {
  std::int64_t first;       ///< the entry that is the rank's first row
  std::int64_t vocabulary;  ///< entries of all ranks
};

/// The options of a call.
struct linear_loss_options {
  loss_reduction reduction = loss_reduction::mean;  ///< how the losses of tokens are reduced
  std::int64_t ignore_index = -100;                 ///< tokens with this label do not count
  std::int64_t shift = 0;     ///< token t of a sequence has label t + shift; the last ones have none
  std::int64_t sequence = 0;  ///< tokens of a sequence; 0: all tokens are one sequence
  float softcap = 0.0F;       ///< logits become softcap * tanh(logit / softcap); 0: no softcap
  float temperature = 1.0F;   ///< logits are divided by it, after the cap
  float smoothing = 0.0F;     ///< label smoothing: the probability that is spread over the vocabulary
  float z_factor = 0.0F;      ///< factor of the z-loss, which is the squared log-sum-exp
  // Options of the backward pass.
  /// The filter's threshold for hidden states; 0: nothing is left out; -1: Filter::threshold.
  float hidden_threshold = -1.0F;
  /// The filter's threshold for the classifier; 0: nothing is left out; -1: Filter::threshold. The bias is never
  /// filtered.
  float classifier_threshold = -1.0F;
  /// The most bytes that the workspace may have; 0: 160 MiB, or what 32 MiB of gradient by the logits need. With a
  /// larger budget forward() may keep softmaxes, which the next backward() uses up. With a smaller one, gradients of 16
  /// bits, and nothing left out, backward() uses gradients' own memory before it writes them.
  std::int64_t workspace_budget = 0;
};

/// The inputs of a call. Label: std::int32_t or std::int64_t. Map: a LogitMap, which is applied to logits after softcap
/// and temperature. Classifier: a view, or the source of a loss `with_classifier` (algorithm/loss/with_classifier.hpp).
template <Scalar T, class Label, LogitMap Map = identity_logits, class Classifier = matrix_view<T const>>
struct linear_loss_inputs {
  matrix_view<T const> hidden;           ///< tokens x channels
  Classifier classifier;                 ///< vocabulary x channels
  array_view<Label const> labels;        ///< a value for each token
  array_view<T const> bias = {};         ///< a value for each entry of the vocabulary, or null
  array_view<float const> weights = {};  ///< a value for each token, or null for ones
  [[no_unique_address]] Map map = {};    ///< the map of logits, whose type is a template argument of the loss
  /// A value for each entry of the vocabulary, or null for ones. The loss of a token is multiplied by its own weight
  /// and by that of its label, as a whole: also what smoothing and the z-loss add to it.
  array_view<float const> class_weights = {};
};

/// The outputs of the forward pass; all but the loss may be null. Tokens without a label get zeros and prediction -1.
/// Tokens whose label is no entry of the vocabulary get NaN and prediction -1.
struct linear_loss_outputs {
  array_view<float> loss;              ///< one element, or one for each token with loss_reduction::none
  array_view<float> log_sum_exp = {};  ///< for each token, log sum exp of its logits
  /// For each token, the log-probability of its label, without weight, smoothing and z-loss.
  array_view<float> log_probability = {};
  array_view<float> entropy = {};            ///< for each token, the entropy of its softmax, in nats
  array_view<std::int32_t> prediction = {};  ///< for each token, its likeliest entry, the first of equal ones
  /// One element: the part of the labelled tokens whose prediction is their label.
  array_view<float> accuracy = {};
  array_view<std::int64_t> labelled_count = {};  ///< one element: the number of tokens with a label
};

/// The gradients that the backward pass writes; null where none is wanted. Gradient: float, or the type of the inputs.
///
/// A gradient that accumulates is added in fp32 to what its view holds, as training over micro batches does; the others
/// overwrite what is there. That of hidden states is added part by part of the vocabulary, the others at once, always
/// in the same order, so that results repeat bit for bit. Where nothing has a gradient, as for tokens without a label,
/// the old values stay, and so does each NaN among them. Where backward() refuses the forward pass in the workspace,
/// all that would be overwritten with NaN becomes NaN. On sm_90a values below 2^-126 may become zeros when something is
/// added to them. Cost: no more memory, and a read of the old values for each part. A gradient that is null is not
/// wanted, whether it accumulates or not.
template <Scalar Gradient>
struct linear_loss_gradients {
  matrix_view<Gradient> hidden = {};      ///< tokens x channels; zeros for tokens without a label
  matrix_view<Gradient> classifier = {};  ///< vocabulary x channels
  array_view<Gradient> bias = {};         ///< a value for each entry of the vocabulary
  /// Whether to add to what `hidden` holds; backward() throws value_error then unless Gradient is float.
  bool accumulate_hidden = false;
  bool accumulate_classifier = false;  ///< the same for `classifier`
  bool accumulate_bias = false;        ///< the same for `bias`
};

}  // namespace v0
}  // namespace tessera
