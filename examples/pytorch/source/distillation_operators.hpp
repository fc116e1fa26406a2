// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operators of distillation for a kind of device: they choose what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "distillation.hpp"
#include "operator_arguments.hpp"

namespace tessera_torch {

/// The options in the order of the operators' schema.
struct distillation_option_arguments {
  std::int64_t divergence;
  double beta;
  std::int64_t reduction;
  double temperature;
  double softcap;
  double teacher_softcap;
  std::int64_t workspace_budget;
  bool is_tf32;

  [[nodiscard]] distillation_settings settings(char const* function) const {
    return {divergence,
            beta,
            {.reduction = reduction_of(function, reduction),
             .temperature = static_cast<float>(temperature),
             .softcap = static_cast<float>(softcap),
             .teacher_softcap = static_cast<float>(teacher_softcap),
             .workspace_budget = workspace_budget}};
  }
};

template <>
struct schema_of<distillation_tensors> {
  using type =
      schema<Tensor, Tensor, Tensor, Tensor, std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>>;
};
template <>
struct schema_of<distillation_option_arguments> {
  using type = schema<std::int64_t, double, std::int64_t, double, double, double, std::int64_t, bool>;
};

/// Calls `use` with an object of Functions<Device, Operand>, such as distillation_of, and with the settings.
template <template <class, class> class Functions, class Device, class Use>
auto with_distillation(distillation_tensors const& given, distillation_option_arguments const& options,
                       Use const& use) {
  constexpr char const* function = "linear_distillation";
  distillation_settings const settings = options.settings(function);
  return with_functions<Functions, Device>(function, given, options.is_tf32,
                                           [&](auto distillation) { return use(distillation, settings); });
}

template <class Device>
std::tuple<Tensor, Tensor> distillation_forward(distillation_tensors const& given,
                                                distillation_option_arguments const& options, bool for_backward) {
  return with_distillation<distillation_of, Device>(given, options, [&]<class Loss>(Loss, auto const& settings) {
    return Loss::forward(given, settings, for_backward);
  });
}

template <class Device>
std::tuple<Tensor, Tensor> distillation_backward(distillation_tensors const& given,
                                                 distillation_option_arguments const& options, Tensor workspace,
                                                 Tensor by_loss, bool of_e, bool of_c) {
  return with_distillation<distillation_of, Device>(given, options, [&]<class Loss>(Loss, auto const& settings) {
    return Loss::backward(given, settings, workspace, {by_loss, std::nullopt, std::nullopt, of_e, of_c, false});
  });
}

}  // namespace tessera_torch
