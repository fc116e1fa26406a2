// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operators of Cut Cross-Entropy for a kind of device: they name arguments, and choose what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "loss.hpp"

namespace tessera_torch {

/// The options in the order of the operators' schema.
inline loss_settings settings_of(char const* function, std::int64_t reduction, std::int64_t ignore_index,
                                 std::int64_t shift, std::int64_t sequence, double softcap, double temperature,
                                 double smoothing, double z_factor, double e_threshold, double c_threshold,
                                 std::int64_t workspace_budget, bool has_statistics, bool is_tf32,
                                 bool adds_gradients = false) {
  return {{.reduction = reduction_of(function, reduction),
           .ignore_index = ignore_index,
           .shift = shift,
           .sequence = sequence,
           .softcap = static_cast<float>(softcap),
           .temperature = static_cast<float>(temperature),
           .smoothing = static_cast<float>(smoothing),
           .z_factor = static_cast<float>(z_factor),
           .hidden_threshold = static_cast<float>(e_threshold),
           .classifier_threshold = static_cast<float>(c_threshold),
           .workspace_budget = workspace_budget},
          has_statistics,
          is_tf32,
          adds_gradients};
}

template <class Device>
loss_results loss_forward(Tensor e, Tensor c, Tensor targets, std::optional<Tensor> bias, std::optional<Tensor> weights,
                          std::optional<Tensor> class_weights, std::optional<Tensor> c_scale,
                          std::optional<Tensor> classifier_gradient, std::optional<Tensor> bias_gradient,
                          std::int64_t reduction, std::int64_t ignore_index, std::int64_t shift, std::int64_t sequence,
                          double softcap, double temperature, double smoothing, double z_factor, double e_threshold,
                          double c_threshold, std::int64_t workspace_budget, bool has_statistics, bool is_tf32,
                          bool for_backward) {
  constexpr char const* function = "linear_cross_entropy";
  gradient_sums const sums{classifier_gradient, bias_gradient};
  loss_settings const settings =
      settings_of(function, reduction, ignore_index, shift, sequence, softcap, temperature, smoothing, z_factor,
                  e_threshold, c_threshold, workspace_budget, has_statistics, is_tf32, sums.has_any());
  loss_tensors const given{e, c, targets, bias, weights, class_weights, c_scale};
  return with_functions<loss_of, Device>(
      function, given, is_tf32, [&]<class Loss>(Loss) { return Loss::forward(given, settings, sums, for_backward); });
}

/// The gradients; those with a tensor to be added to are no results.
template <class Device>
std::tuple<Tensor, Tensor, Tensor> loss_backward_into(
    Tensor e, Tensor c, Tensor targets, std::optional<Tensor> bias, std::optional<Tensor> weights,
    std::optional<Tensor> class_weights, std::optional<Tensor> c_scale, std::optional<Tensor> classifier_gradient,
    std::optional<Tensor> bias_gradient, std::int64_t reduction, std::int64_t ignore_index, std::int64_t shift,
    std::int64_t sequence, double softcap, double temperature, double smoothing, double z_factor, double e_threshold,
    double c_threshold, std::int64_t workspace_budget, bool has_statistics, bool is_tf32, Tensor workspace,
    std::optional<Tensor> by_loss, std::optional<Tensor> by_log_sum_exp, std::optional<Tensor> by_entropy, bool of_e,
    bool of_c, bool of_bias) {
  constexpr char const* function = "linear_cross_entropy";
  gradient_sums const sums{classifier_gradient, bias_gradient};
  loss_settings const settings =
      settings_of(function, reduction, ignore_index, shift, sequence, softcap, temperature, smoothing, z_factor,
                  e_threshold, c_threshold, workspace_budget, has_statistics, is_tf32, sums.has_any());
  loss_tensors const given{e, c, targets, bias, weights, class_weights, c_scale};
  return with_functions<loss_of, Device>(function, given, is_tf32, [&]<class Loss>(Loss) {
    return Loss::backward(given, settings, workspace, {by_loss, by_log_sum_exp, by_entropy, of_e, of_c, of_bias, sums});
  });
}

/// The same where all gradients are results: an operator that changes no argument.
template <class Device>
std::tuple<Tensor, Tensor, Tensor> loss_backward(Tensor e, Tensor c, Tensor targets, std::optional<Tensor> bias,
                                                 std::optional<Tensor> weights, std::optional<Tensor> class_weights,
                                                 std::optional<Tensor> c_scale, std::int64_t reduction,
                                                 std::int64_t ignore_index, std::int64_t shift, std::int64_t sequence,
                                                 double softcap, double temperature, double smoothing, double z_factor,
                                                 double e_threshold, double c_threshold, std::int64_t workspace_budget,
                                                 bool has_statistics, bool is_tf32, Tensor workspace,
                                                 std::optional<Tensor> by_loss, std::optional<Tensor> by_log_sum_exp,
                                                 std::optional<Tensor> by_entropy, bool of_e, bool of_c, bool of_bias) {
  return loss_backward_into<Device>(e, c, targets, bias, weights, class_weights, c_scale, std::nullopt, std::nullopt,
                                    reduction, ignore_index, shift, sequence, softcap, temperature, smoothing, z_factor,
                                    e_threshold, c_threshold, workspace_budget, has_statistics, is_tf32, workspace,
                                    by_loss, by_log_sum_exp, by_entropy, of_e, of_c, of_bias);
}

/// The bytes of the workspace that loss_forward() makes.
template <class Device>
std::int64_t loss_workspace_bytes(torch::stable::Device const& device, ScalarType type, bool is_stored,
                                  tessera::linear_loss_shape const& shape, loss_settings const& settings,
                                  bool for_backward) {
  return with_functions<loss_of, Device>(
      "linear_cross_entropy", type, is_stored, settings.is_tf32,
      [&]<class Loss>(Loss) { return Loss::workspace_bytes(device, shape, settings, for_backward); });
}

/// For CUDA, where the extension has it; chosen at run time so that the function exists in both cases.
using workspace_bytes_function = std::int64_t (*)(torch::stable::Device const&, ScalarType, bool,
                                                  tessera::linear_loss_shape const&, loss_settings const&, bool);
inline workspace_bytes_function& cuda_workspace_bytes() {
  static workspace_bytes_function found = nullptr;
  return found;
}

}  // namespace tessera_torch
