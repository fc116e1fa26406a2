// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The arguments of Cut Cross-Entropy's operators, and what there is for a kind of device and a type of operands.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <tessera/algorithm/loss/linear_loss_types.hpp>

#include "stored_rows.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// The tensors of a loss. e: tokens x channels, c: vocabulary x channels, bias: vocabulary, of the type of e; targets:
/// tokens, int64; weights: tokens, class_weights: vocabulary, c_scale: vocabulary, of codes, all float.
struct loss_tensors {
  Tensor e;
  Tensor c;
  Tensor targets;
  std::optional<Tensor> bias;
  std::optional<Tensor> weights;
  std::optional<Tensor> class_weights;
  std::optional<Tensor> c_scale;

  [[nodiscard]] classifier_tensor classifier() const { return {c, c_scale}; }
  [[nodiscard]] bool has_stored() const { return is_stored(e, classifier()); }
};

/// The options of a loss that all its passes need.
struct loss_settings {
  tessera::linear_loss_options options;
  bool has_statistics;  ///< entropies, predictions and smoothed labels
  bool is_tf32;         ///< floats are multiplied as tf32
  bool adds_gradients;  ///< some gradients are added to what there is, so that all of them are float
};

/// What a forward pass gives. Lists of tokens; those that were not asked for have no elements.
using loss_results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

/// Float tensors that gradients are added to, in the shapes of c and bias; no tensor where a gradient is a result.
struct gradient_sums {
  std::optional<Tensor> of_c;
  std::optional<Tensor> of_bias;

  [[nodiscard]] bool has_any() const { return of_c.has_value() || of_bias.has_value(); }
};

/// Which gradients are wanted, and those of the result by what a forward pass gave; no tensor where there is none.
struct loss_gradient_request {
  std::optional<Tensor> by_loss;
  std::optional<Tensor> by_log_sum_exp;
  std::optional<Tensor> by_entropy;
  bool of_e;
  bool of_c;
  bool of_bias;
  gradient_sums sums = {};
};

/// The loss for operands of a type: bfloat16, float16, float, tf32, or stored_as one of them. loss_programs.hpp defines
/// the functions, and one source for each type and device compiles them.
template <class Device, class Operand>
struct loss_of {
  static loss_results forward(loss_tensors const& given, loss_settings const& settings, gradient_sums const& sums,
                              bool for_backward);
  static std::tuple<Tensor, Tensor, Tensor> backward(loss_tensors const& given, loss_settings const& settings,
                                                     Tensor const& workspace, loss_gradient_request const& wanted);
  /// The bytes of the workspace that forward() makes.
  static std::int64_t workspace_bytes(torch::stable::Device const& device, tessera::linear_loss_shape const& shape,
                                      loss_settings const& settings, bool for_backward);
};

/// Calls `use` with an object of Functions<Device, Operand>, such as loss_of, for the type of the hidden states, where
/// the classifier has their type or is stored in another one.
template <template <class, class> class Functions, class Device, class Use>
auto with_functions(char const* function, ScalarType type, bool is_stored, bool is_tf32, Use const& use) {
  auto const with_operand = [&]<class Operand>(classifiers_of<Operand>) {
    return is_stored ? use(Functions<Device, stored_as<Operand>>{}) : use(Functions<Device, Operand>{});
  };
  switch (type) {
    case ScalarType::BFloat16:
      return with_operand(classifiers_of<bfloat16>{});
    case ScalarType::Half:
      return with_operand(classifiers_of<tessera::float16>{});
    default:
      tessera::check<tessera::value_error>(type == ScalarType::Float, function, ": the hidden states are of type ",
                                           torch::headeronly::toString(type),
                                           " but must be of type BFloat16, Half or Float");
      return is_tf32 ? with_operand(classifiers_of<tessera::tf32>{}) : with_operand(classifiers_of<float>{});
  }
}
/// The same for the tensors of a call, whose hidden states are `e`.
template <template <class, class> class Functions, class Device, class Tensors, class Use>
auto with_functions(char const* function, Tensors const& given, bool is_tf32, Use const& use) {
  return with_functions<Functions, Device>(function, given.e.scalar_type(), given.has_stored(), is_tf32, use);
}

/// The reduction with a number of Python's.
inline tessera::loss_reduction reduction_of(char const* function, std::int64_t number) {
  tessera::check<tessera::value_error>(number >= 0 && number <= 2, function, ": the reduction is ", number,
                                       " but must be from 0 to ", 2);
  return static_cast<tessera::loss_reduction>(number);
}

}  // namespace tessera_torch
