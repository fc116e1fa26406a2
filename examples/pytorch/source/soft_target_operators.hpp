// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operators of soft targets for a kind of device: they name arguments, and choose what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "loss_operators.hpp"
#include "soft_targets.hpp"

namespace tessera_torch {

template <class Device>
std::tuple<Tensor, Tensor, Tensor> soft_target_forward(Tensor e, Tensor c, Tensor entries, Tensor entry_weights,
                                                       std::optional<Tensor> bias, std::optional<Tensor> weights,
                                                       std::optional<Tensor> c_scale, std::int64_t reduction,
                                                       double softcap, double temperature, double smoothing,
                                                       double z_factor, double e_threshold, double c_threshold,
                                                       std::int64_t workspace_budget, bool is_tf32, bool for_backward) {
  auto const options = settings_of("soft_target_cross_entropy", reduction, -1, 0, 0, softcap, temperature, smoothing,
                                   z_factor, e_threshold, c_threshold, workspace_budget, true, is_tf32)
                           .options;
  soft_target_tensors const given{e, c, entries, entry_weights, bias, weights, c_scale};
  return with_functions<soft_targets_of, Device>(
      "soft_target_cross_entropy", given, is_tf32,
      [&]<class Targets>(Targets) { return Targets::forward(given, options, for_backward); });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> soft_target_backward(
    Tensor e, Tensor c, Tensor entries, Tensor entry_weights, std::optional<Tensor> bias, std::optional<Tensor> weights,
    std::optional<Tensor> c_scale, std::int64_t reduction, double softcap, double temperature, double smoothing,
    double z_factor, double e_threshold, double c_threshold, std::int64_t workspace_budget, bool is_tf32,
    Tensor workspace, std::optional<Tensor> by_loss, std::optional<Tensor> by_log_sum_exp, bool of_e, bool of_c,
    bool of_bias) {
  auto const options = settings_of("soft_target_cross_entropy", reduction, -1, 0, 0, softcap, temperature, smoothing,
                                   z_factor, e_threshold, c_threshold, workspace_budget, true, is_tf32)
                           .options;
  soft_target_tensors const given{e, c, entries, entry_weights, bias, weights, c_scale};
  return with_functions<soft_targets_of,
                        Device>("soft_target_cross_entropy", given, is_tf32, [&]<class Targets>(Targets) {
    return Targets::backward(given, options, workspace, {by_loss, by_log_sum_exp, std::nullopt, of_e, of_c, of_bias});
  });
}

template <class Device>
Tensor chosen_log_probabilities(Tensor e, Tensor c, Tensor entries, Tensor log_sum_exp, std::optional<Tensor> bias,
                                std::optional<Tensor> c_scale, double softcap, double temperature) {
  tessera::linear_loss_options const options{.softcap = static_cast<float>(softcap),
                                             .temperature = static_cast<float>(temperature)};
  chosen_tensors const given{e, c, entries, log_sum_exp, bias, c_scale};
  return with_functions<soft_targets_of, Device>("chosen_log_probabilities", given, false, [&]<class Targets>(Targets) {
    return Targets::chosen(given, options);
  });
}

}  // namespace tessera_torch
