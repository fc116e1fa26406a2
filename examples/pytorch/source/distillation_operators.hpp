// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operators of distillation for a kind of device: they name arguments, and choose what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "distillation.hpp"

namespace tessera_torch {

inline distillation_settings distillation_settings_of(std::int64_t divergence, double beta, std::int64_t reduction,
                                                      double temperature, double softcap, double teacher_softcap,
                                                      std::int64_t workspace_budget) {
  return {divergence,
          beta,
          {.reduction = reduction_of("linear_distillation", reduction),
           .temperature = static_cast<float>(temperature),
           .softcap = static_cast<float>(softcap),
           .teacher_softcap = static_cast<float>(teacher_softcap),
           .workspace_budget = workspace_budget}};
}

template <class Device>
std::tuple<Tensor, Tensor> distillation_forward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c,
                                                std::optional<Tensor> weights, std::optional<Tensor> c_scale,
                                                std::optional<Tensor> teacher_c_scale, std::int64_t divergence,
                                                double beta, std::int64_t reduction, double temperature, double softcap,
                                                double teacher_softcap, std::int64_t workspace_budget, bool is_tf32,
                                                bool for_backward) {
  distillation_settings const settings =
      distillation_settings_of(divergence, beta, reduction, temperature, softcap, teacher_softcap, workspace_budget);
  distillation_tensors const given{e, c, teacher_e, teacher_c, weights, c_scale, teacher_c_scale};
  return with_functions<distillation_of, Device>(
      "linear_distillation", given, is_tf32,
      [&]<class Distillation>(Distillation) { return Distillation::forward(given, settings, for_backward); });
}

template <class Device>
std::tuple<Tensor, Tensor> distillation_backward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c,
                                                 std::optional<Tensor> weights, std::optional<Tensor> c_scale,
                                                 std::optional<Tensor> teacher_c_scale, std::int64_t divergence,
                                                 double beta, std::int64_t reduction, double temperature,
                                                 double softcap, double teacher_softcap, std::int64_t workspace_budget,
                                                 bool is_tf32, Tensor workspace, Tensor by_loss, bool of_e, bool of_c) {
  distillation_settings const settings =
      distillation_settings_of(divergence, beta, reduction, temperature, softcap, teacher_softcap, workspace_budget);
  distillation_tensors const given{e, c, teacher_e, teacher_c, weights, c_scale, teacher_c_scale};
  return with_functions<distillation_of,
                        Device>("linear_distillation", given, is_tf32, [&]<class Distillation>(Distillation) {
    return Distillation::backward(given, settings, workspace, {by_loss, std::nullopt, std::nullopt, of_e, of_c, false});
  });
}

}  // namespace tessera_torch
