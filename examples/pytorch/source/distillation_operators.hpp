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
  tessera::check<tessera::value_error>(reduction >= 0 && reduction <= 2, "linear_distillation: the reduction is ",
                                       reduction, " but must be from 0 to ", 2);
  return {divergence,
          beta,
          {.reduction = static_cast<tessera::loss_reduction>(reduction),
           .temperature = static_cast<float>(temperature),
           .softcap = static_cast<float>(softcap),
           .teacher_softcap = static_cast<float>(teacher_softcap),
           .workspace_budget = workspace_budget}};
}

/// Calls `use` with the functions for the type of the hidden states.
template <class Device, class Use>
auto with_distillation(ScalarType type, bool is_tf32, Use const& use) {
  return with_operand<Device>(
      type, is_tf32, [&]<class Operand>(loss_of<Device, Operand>) { return use(distillation_of<Device, Operand>{}); });
}

template <class Device>
std::tuple<Tensor, Tensor> distillation_forward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c,
                                                std::optional<Tensor> weights, std::int64_t divergence, double beta,
                                                std::int64_t reduction, double temperature, double softcap,
                                                double teacher_softcap, std::int64_t workspace_budget, bool is_tf32,
                                                bool for_backward) {
  distillation_settings const settings =
      distillation_settings_of(divergence, beta, reduction, temperature, softcap, teacher_softcap, workspace_budget);
  return with_distillation<Device>(e.scalar_type(), is_tf32, [&]<class Distillation>(Distillation) {
    return Distillation::forward({e, c, teacher_e, teacher_c, weights}, settings, for_backward);
  });
}

template <class Device>
std::tuple<Tensor, Tensor> distillation_backward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c,
                                                 std::optional<Tensor> weights, std::int64_t divergence, double beta,
                                                 std::int64_t reduction, double temperature, double softcap,
                                                 double teacher_softcap, std::int64_t workspace_budget, bool is_tf32,
                                                 Tensor workspace, Tensor by_loss, bool of_e, bool of_c) {
  distillation_settings const settings =
      distillation_settings_of(divergence, beta, reduction, temperature, softcap, teacher_softcap, workspace_budget);
  return with_distillation<Device>(e.scalar_type(), is_tf32, [&]<class Distillation>(Distillation) {
    return Distillation::backward({e, c, teacher_e, teacher_c, weights}, settings, workspace,
                                  {by_loss, std::nullopt, std::nullopt, of_e, of_c, false});
  });
}

}  // namespace tessera_torch
