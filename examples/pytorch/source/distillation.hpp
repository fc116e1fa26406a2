// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Distillation of a classifier for a type of operands. distillation_programs.hpp defines the functions, and one source
/// for each type and device compiles them.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <tessera/algorithm/loss/linear_distillation_types.hpp>

#include "loss.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// e, c: of the student, tokens and vocabulary x channels; teacher_e, teacher_c: the teacher's, with channels of their
/// own, teacher_e of the type of e; weights: tokens, c_scale, teacher_c_scale: vocabulary, of codes, all float.
struct distillation_tensors {
  Tensor e;
  Tensor c;
  Tensor teacher_e;
  Tensor teacher_c;
  std::optional<Tensor> weights;
  std::optional<Tensor> c_scale;
  std::optional<Tensor> teacher_c_scale;

  [[nodiscard]] classifier_tensor classifier() const { return {c, c_scale}; }
  [[nodiscard]] classifier_tensor teacher_classifier() const { return {teacher_c, teacher_c_scale}; }
  [[nodiscard]] bool has_stored() const { return is_stored(e, classifier()) || is_stored(e, teacher_classifier()); }
};

struct distillation_settings {
  std::int64_t divergence;  ///< 0: forward_kl, 1: reverse_kl, 2: jensen_shannon
  double beta;              ///< of jensen_shannon
  tessera::distillation_options options;
};

template <class Device, class Operand>
struct distillation_of {
  /// The loss and the workspace.
  static std::tuple<Tensor, Tensor> forward(distillation_tensors const& given, distillation_settings const& settings,
                                            bool for_backward);
  static std::tuple<Tensor, Tensor> backward(distillation_tensors const& given, distillation_settings const& settings,
                                             Tensor const& workspace, loss_gradient_request const& wanted);
};

}  // namespace tessera_torch
