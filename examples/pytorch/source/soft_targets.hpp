// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss whose targets are several entries with weights, and log-probabilities of chosen entries, for a type of
/// operands. soft_targets_programs.hpp defines the functions, and one source for each type and device compiles them.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "loss.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// e: tokens x channels, c: vocabulary x channels, bias: vocabulary, of the type of e; entries: tokens x K, int64;
/// entry_weights: tokens x K, weights: tokens, c_scale: vocabulary, of codes, all float.
struct soft_target_tensors {
  Tensor e;
  Tensor c;
  Tensor entries;
  Tensor entry_weights;
  std::optional<Tensor> bias;
  std::optional<Tensor> weights;
  std::optional<Tensor> c_scale;

  [[nodiscard]] classifier_tensor classifier() const { return {c, c_scale}; }
  [[nodiscard]] bool has_stored() const { return is_stored(e, classifier()); }
};

/// The same where the log-probabilities of entries are wanted. log_sum_exp: tokens, those of all logits, float.
struct chosen_tensors {
  Tensor e;
  Tensor c;
  Tensor entries;
  Tensor log_sum_exp;
  std::optional<Tensor> bias;
  std::optional<Tensor> c_scale;

  [[nodiscard]] classifier_tensor classifier() const { return {c, c_scale}; }
  [[nodiscard]] bool has_stored() const { return is_stored(e, classifier()); }
};

template <class Device, class Operand>
struct soft_targets_of {
  /// The loss, log-sum-exps of tokens and the workspace.
  static std::tuple<Tensor, Tensor, Tensor> forward(soft_target_tensors const& given,
                                                    tessera::linear_loss_options const& options, bool for_backward);
  static std::tuple<Tensor, Tensor, Tensor> backward(soft_target_tensors const& given,
                                                     tessera::linear_loss_options const& options,
                                                     Tensor const& workspace, loss_gradient_request const& wanted);
  /// Log-probabilities of entries: tokens x K.
  static Tensor chosen(chosen_tensors const& given, tessera::linear_loss_options const& options);
};

}  // namespace tessera_torch
