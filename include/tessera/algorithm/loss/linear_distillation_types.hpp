// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The types of calls of algorithm/loss/linear_distillation.hpp: extents, options, inputs and outputs.
///
///     distillation_options options;
///     options.temperature = 2.0F;
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/detail/loss_with_classifier.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The extents of a problem.
struct distillation_shape {
  std::int64_t tokens;            ///< rows of hidden states
  std::int64_t vocabulary;        ///< rows of both classifiers
  std::int64_t channels;          ///< numbers of a hidden state of the student
  std::int64_t teacher_channels;  ///< numbers of a hidden state of the teacher
};

/// The options of a call.
struct distillation_options {
  loss_reduction reduction = loss_reduction::mean;  ///< how the losses of tokens are reduced
  /// Logits of both are divided by it, after the caps. Losses are not multiplied by its square, as some are.
  float temperature = 1.0F;
  float softcap = 0.0F;          ///< the student's logits become softcap * tanh(logit / softcap); 0: no softcap
  float teacher_softcap = 0.0F;  ///< the same for the teacher's
  /// The most bytes of the workspace that hold logits and gradients by logits; 0: 384 MiB for a part of the vocabulary,
  /// which has at least 128 entries. A larger one saves products (linear_distillation.hpp, cost): parts are of tokens,
  /// with all entries, where there is room for both sides' logits of 256, and with a reduction forward() in a workspace
  /// of plan_backward() keeps gradients by logits for backward(), of all tokens or of as many as fit beside 512 tokens'
  /// logits. Ranks of vocabulary_parallel keep to parts of the vocabulary. Both passes must have the same budget where
  /// gradients are kept; else backward() refuses.
  std::int64_t workspace_budget = 0;
};

/// The inputs of a call. Student, Teacher: what classifiers are given as: views, or the sources of a distillation
/// `with_classifier` and `with_teacher_classifier`, and what their logits go through, `with_logit_maps`.
template <Scalar T, Divergence D = forward_kl, class Student = matrix_view<T const>,
          class Teacher = matrix_view<T const>>
struct distillation_inputs {
  matrix_view<T const> hidden;                    ///< tokens x channels, of the student
  detail::rows_type<Student> classifier;          ///< vocabulary x channels, of the student
  matrix_view<T const> teacher_hidden;            ///< tokens x teacher_channels
  detail::rows_type<Teacher> teacher_classifier;  ///< vocabulary x teacher_channels
  array_view<float const> weights = {};     ///< a value for each token, or null for ones; 0: the token does not count
  [[no_unique_address]] D divergence = {};  ///< how far the student is from the teacher
  array_view<T const> bias = {};            ///< of the student: a value for each entry of the vocabulary, or null
  array_view<T const> teacher_bias = {};    ///< the same of the teacher
  [[no_unique_address]] detail::map_type<Student> map = {};          ///< the map of the student's logits
  [[no_unique_address]] detail::map_type<Teacher> teacher_map = {};  ///< the map of the teacher's logits
};

/// The outputs of the forward pass.
struct distillation_outputs {
  array_view<float> loss;             ///< one element, or one for each token with loss_reduction::none
  array_view<float> divergence = {};  ///< for each token, its divergence without its weight, in nats; or null
};

}  // namespace v0
}  // namespace tessera
