// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operators of Cut Cross-Entropy for a kind of device: they choose what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "loss.hpp"
#include "operator_arguments.hpp"

namespace tessera_torch {

/// The options that losses of labels and of soft targets share, in the order of the operators' schemas.
struct cross_entropy_option_arguments {
  double softcap;
  double temperature;
  double smoothing;
  double z_factor;
  double e_threshold;
  double c_threshold;
  std::int64_t workspace_budget;

  /// The options with a reduction, which schemas have earlier.
  [[nodiscard]] tessera::linear_loss_options options(char const* function, std::int64_t reduction) const {
    return {.reduction = reduction_of(function, reduction),
            .softcap = static_cast<float>(softcap),
            .temperature = static_cast<float>(temperature),
            .smoothing = static_cast<float>(smoothing),
            .z_factor = static_cast<float>(z_factor),
            .hidden_threshold = static_cast<float>(e_threshold),
            .classifier_threshold = static_cast<float>(c_threshold),
            .workspace_budget = workspace_budget};
  }
};
/// The options of a loss of labels in the order of the operators' schema.
struct loss_option_arguments {
  std::int64_t reduction;
  std::int64_t ignore_index;
  std::int64_t shift;
  std::int64_t sequence;
  cross_entropy_option_arguments shared;
  bool has_statistics;
  bool is_tf32;

  [[nodiscard]] loss_settings settings(char const* function, bool adds_gradients) const {
    tessera::linear_loss_options options = shared.options(function, reduction);
    options.ignore_index = ignore_index;
    options.shift = shift;
    options.sequence = sequence;
    return {options, has_statistics, is_tf32, adds_gradients};
  }
};

template <>
struct schema_of<loss_tensors> {
  using type = schema<Tensor, Tensor, Tensor, std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>,
                      std::optional<Tensor>>;
};
template <>
struct schema_of<gradient_sums> {
  using type = schema<std::optional<Tensor>, std::optional<Tensor>>;
};
template <>
struct schema_of<cross_entropy_option_arguments> {
  using type = schema<double, double, double, double, double, double, std::int64_t>;
};
template <>
struct schema_of<loss_option_arguments> {
  using type =
      joined_schema<std::int64_t, std::int64_t, std::int64_t, std::int64_t, cross_entropy_option_arguments, bool, bool>;
};
/// What changes logits, for functions that are no losses.
struct logit_option_arguments {
  double softcap;
  double temperature;

  [[nodiscard]] tessera::linear_loss_options options() const {
    return {.softcap = static_cast<float>(softcap), .temperature = static_cast<float>(temperature)};
  }
};
template <>
struct schema_of<logit_option_arguments> {
  using type = schema<double, double>;
};
/// All but the sums, which come earlier.
template <>
struct schema_of<loss_gradient_request> {
  using type = schema<std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>, bool, bool, bool>;
};

/// The name of the function, for errors.
inline constexpr char const* loss_function = "linear_cross_entropy";

/// Calls `use` with an object of Functions<Device, Operand>, such as loss_of, and with the settings.
template <template <class, class> class Functions, class Device, class Use>
auto with_loss(loss_tensors const& given, gradient_sums const& sums, loss_option_arguments const& options,
               Use const& use) {
  loss_settings const settings = options.settings(loss_function, sums.has_any());
  return with_functions<Functions, Device>(loss_function, given, options.is_tf32,
                                           [&](auto loss) { return use(loss, settings); });
}

template <class Device>
loss_results loss_forward(loss_tensors const& given, gradient_sums const& sums, loss_option_arguments const& options,
                          bool for_backward) {
  return with_loss<loss_of, Device>(given, sums, options, [&]<class Loss>(Loss, loss_settings const& settings) {
    return Loss::forward(given, settings, sums, for_backward);
  });
}

/// The gradients; those with a tensor to be added to are no results.
template <class Device>
std::tuple<Tensor, Tensor, Tensor> loss_backward_into(loss_tensors const& given, gradient_sums const& sums,
                                                      loss_option_arguments const& options, Tensor workspace,
                                                      loss_gradient_request wanted) {
  wanted.sums = sums;
  return with_loss<loss_of, Device>(given, sums, options, [&]<class Loss>(Loss, loss_settings const& settings) {
    return Loss::backward(given, settings, workspace, wanted);
  });
}

/// The same where all gradients are results: an operator that changes no argument.
template <class Device>
std::tuple<Tensor, Tensor, Tensor> loss_backward(loss_tensors const& given, loss_option_arguments const& options,
                                                 Tensor workspace, loss_gradient_request const& wanted) {
  return loss_backward_into<Device>(given, {}, options, workspace, wanted);
}

/// The bytes of the workspace that loss_forward() makes.
template <class Device>
std::int64_t loss_workspace_bytes(torch::stable::Device const& device, ScalarType type, bool is_stored,
                                  tessera::linear_loss_shape const& shape, loss_settings const& settings,
                                  bool for_backward) {
  return with_functions<loss_of, Device>(loss_function, type, is_stored, settings.is_tf32, [&]<class Loss>(Loss) {
    return Loss::workspace_bytes(device, shape, settings, for_backward);
  });
}

/// For CUDA, where the extension has it; chosen at run time so that the function exists in both cases.
using workspace_bytes_function = std::int64_t (*)(torch::stable::Device const&, ScalarType, bool,
                                                  tessera::linear_loss_shape const&, loss_settings const&, bool);
inline workspace_bytes_function& cuda_workspace_bytes() {
  static workspace_bytes_function found = nullptr;
  return found;
}

}  // namespace tessera_torch
