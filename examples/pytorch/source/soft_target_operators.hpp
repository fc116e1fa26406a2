// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operators of soft targets for a kind of device: they choose what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "loss_operators.hpp"
#include "operator_arguments.hpp"
#include "soft_targets.hpp"

namespace tessera_torch {

/// The options in the order of the operators' schema.
struct soft_target_option_arguments {
  std::int64_t reduction;
  cross_entropy_option_arguments shared;
  bool is_tf32;

  /// The options, by which an entry of -1 is none, as all that are negative.
  [[nodiscard]] tessera::linear_loss_options options(char const* function) const {
    tessera::linear_loss_options options = shared.options(function, reduction);
    options.ignore_index = -1;
    return options;
  }
};

template <>
struct schema_of<soft_target_tensors> {
  using type =
      schema<Tensor, Tensor, Tensor, Tensor, std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>>;
};
template <>
struct schema_of<soft_target_option_arguments> {
  using type = joined_schema<std::int64_t, cross_entropy_option_arguments, bool>;
};

/// Which gradients are wanted, where entropies are no results.
struct soft_target_gradient_request {
  std::optional<Tensor> by_loss;
  std::optional<Tensor> by_log_sum_exp;
  bool of_e;
  bool of_c;
  bool of_bias;

  [[nodiscard]] loss_gradient_request whole() const {
    return {by_loss, by_log_sum_exp, std::nullopt, of_e, of_c, of_bias};
  }
};
template <>
struct schema_of<soft_target_gradient_request> {
  using type = schema<std::optional<Tensor>, std::optional<Tensor>, bool, bool, bool>;
};

template <>
struct schema_of<chosen_tensors> {
  using type = schema<Tensor, Tensor, Tensor, Tensor, std::optional<Tensor>, std::optional<Tensor>>;
};

/// The name of the function of chosen entries, for errors.
inline constexpr char const* chosen_function = "chosen_log_probabilities";

/// Calls `use` with an object of Functions<Device, Operand>, such as soft_targets_of, and with the options.
template <template <class, class> class Functions, class Device, class Use>
auto with_soft_targets(soft_target_tensors const& given, soft_target_option_arguments const& options, Use const& use) {
  constexpr char const* function = "soft_target_cross_entropy";
  auto const loss_options = options.options(function);
  return with_functions<Functions, Device>(function, given, options.is_tf32,
                                           [&](auto targets) { return use(targets, loss_options); });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> soft_target_forward(soft_target_tensors const& given,
                                                       soft_target_option_arguments const& options, bool for_backward) {
  return with_soft_targets<soft_targets_of, Device>(given, options, [&]<class Targets>(Targets, auto const& own) {
    return Targets::forward(given, own, for_backward);
  });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> soft_target_backward(soft_target_tensors const& given,
                                                        soft_target_option_arguments const& options, Tensor workspace,
                                                        soft_target_gradient_request const& wanted) {
  return with_soft_targets<soft_targets_of, Device>(given, options, [&]<class Targets>(Targets, auto const& own) {
    return Targets::backward(given, own, workspace, wanted.whole());
  });
}

template <class Device>
Tensor chosen_log_probabilities(chosen_tensors const& given, logit_option_arguments const& of_logits) {
  return with_functions<soft_targets_of, Device>(chosen_function, given, false, [&]<class Targets>(Targets) {
    return Targets::chosen(given, of_logits.options());
  });
}

}  // namespace tessera_torch
