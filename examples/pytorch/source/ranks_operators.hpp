// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operators of losses over ranks for a kind of device: they name arguments, and choose what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "distillation_operators.hpp"
#include "loss_operators.hpp"
#include "ranks.hpp"

namespace tessera_torch {

/// The bytes of the workspace of linear_cross_entropy over ranks.
template <class Device>
std::int64_t rank_loss_bytes(Tensor e, Tensor c, Tensor targets, std::optional<Tensor> bias,
                             std::optional<Tensor> weights, std::optional<Tensor> class_weights,
                             std::optional<Tensor> c_scale, std::optional<Tensor> classifier_gradient,
                             std::optional<Tensor> bias_gradient, std::int64_t reduction, std::int64_t ignore_index,
                             std::int64_t shift, std::int64_t sequence, double softcap, double temperature,
                             double smoothing, double z_factor, double e_threshold, double c_threshold,
                             std::int64_t workspace_budget, bool has_statistics, bool is_tf32, std::int64_t ranks,
                             bool for_backward) {
  constexpr char const* function = "linear_cross_entropy";
  gradient_sums const sums{classifier_gradient, bias_gradient};
  auto const settings =
      settings_of(function, reduction, ignore_index, shift, sequence, softcap, temperature, smoothing, z_factor,
                  e_threshold, c_threshold, workspace_budget, has_statistics, is_tf32, sums.has_any());
  loss_tensors const given{e, c, targets, bias, weights, class_weights, c_scale};
  return with_functions<rank_loss_of, Device>(
      function, given, is_tf32, [&]<class Loss>(Loss) { return Loss::bytes(given, settings, ranks, for_backward); });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> rank_loss_forward(
    Tensor e, Tensor c, Tensor targets, std::optional<Tensor> bias, std::optional<Tensor> weights,
    std::optional<Tensor> class_weights, std::optional<Tensor> c_scale, std::optional<Tensor> classifier_gradient,
    std::optional<Tensor> bias_gradient, std::int64_t reduction, std::int64_t ignore_index, std::int64_t shift,
    std::int64_t sequence, double softcap, double temperature, double smoothing, double z_factor, double e_threshold,
    double c_threshold, std::int64_t workspace_budget, bool has_statistics, bool is_tf32, Tensor workspace,
    std::int64_t rank, std::int64_t ranks, std::int64_t first, std::int64_t vocabulary, std::int64_t gather) {
  constexpr char const* function = "linear_cross_entropy";
  gradient_sums const sums{classifier_gradient, bias_gradient};
  auto const settings =
      settings_of(function, reduction, ignore_index, shift, sequence, softcap, temperature, smoothing, z_factor,
                  e_threshold, c_threshold, workspace_budget, has_statistics, is_tf32, sums.has_any());
  loss_tensors const given{e, c, targets, bias, weights, class_weights, c_scale};
  return with_functions<rank_loss_of, Device>(function, given, is_tf32, [&]<class Loss>(Loss) {
    return Loss::forward(given, settings, sums, workspace, {rank, ranks, first, vocabulary, gather});
  });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> rank_loss_backward(
    Tensor e, Tensor c, Tensor targets, std::optional<Tensor> bias, std::optional<Tensor> weights,
    std::optional<Tensor> class_weights, std::optional<Tensor> c_scale, std::optional<Tensor> classifier_gradient,
    std::optional<Tensor> bias_gradient, std::int64_t reduction, std::int64_t ignore_index, std::int64_t shift,
    std::int64_t sequence, double softcap, double temperature, double smoothing, double z_factor, double e_threshold,
    double c_threshold, std::int64_t workspace_budget, bool has_statistics, bool is_tf32, Tensor workspace,
    std::int64_t rank, std::int64_t ranks, std::int64_t first, std::int64_t vocabulary, std::optional<Tensor> by_loss,
    std::optional<Tensor> by_log_sum_exp, std::optional<Tensor> by_entropy, bool of_e, bool of_c, bool of_bias) {
  constexpr char const* function = "linear_cross_entropy";
  gradient_sums const sums{classifier_gradient, bias_gradient};
  auto const settings =
      settings_of(function, reduction, ignore_index, shift, sequence, softcap, temperature, smoothing, z_factor,
                  e_threshold, c_threshold, workspace_budget, has_statistics, is_tf32, sums.has_any());
  loss_tensors const given{e, c, targets, bias, weights, class_weights, c_scale};
  return with_functions<rank_loss_of, Device>(function, given, is_tf32, [&]<class Loss>(Loss) {
    return Loss::backward(given, settings, workspace, {rank, ranks, first, vocabulary},
                          {by_loss, by_log_sum_exp, by_entropy, of_e, of_c, of_bias, sums});
  });
}

/// The bytes of the workspace of soft_target_cross_entropy over ranks.
template <class Device>
std::int64_t rank_soft_target_bytes(Tensor e, Tensor c, Tensor entries, Tensor entry_weights,
                                    std::optional<Tensor> bias, std::optional<Tensor> weights,
                                    std::optional<Tensor> c_scale, std::int64_t reduction, double softcap,
                                    double temperature, double smoothing, double z_factor, double e_threshold,
                                    double c_threshold, std::int64_t workspace_budget, bool is_tf32, std::int64_t ranks,
                                    bool for_backward) {
  constexpr char const* function = "soft_target_cross_entropy";
  auto const settings = settings_of(function, reduction, -1, 0, 0, softcap, temperature, smoothing, z_factor,
                                    e_threshold, c_threshold, workspace_budget, true, is_tf32)
                            .options;
  soft_target_tensors const given{e, c, entries, entry_weights, bias, weights, c_scale};
  return with_functions<rank_soft_targets_of, Device>(
      function, given, is_tf32, [&]<class Loss>(Loss) { return Loss::bytes(given, settings, ranks, for_backward); });
}

template <class Device>
std::tuple<Tensor, Tensor> rank_soft_target_forward(Tensor e, Tensor c, Tensor entries, Tensor entry_weights,
                                                    std::optional<Tensor> bias, std::optional<Tensor> weights,
                                                    std::optional<Tensor> c_scale, std::int64_t reduction,
                                                    double softcap, double temperature, double smoothing,
                                                    double z_factor, double e_threshold, double c_threshold,
                                                    std::int64_t workspace_budget, bool is_tf32, Tensor workspace,
                                                    std::int64_t rank, std::int64_t ranks, std::int64_t first,
                                                    std::int64_t vocabulary, std::int64_t gather) {
  constexpr char const* function = "soft_target_cross_entropy";
  auto const settings = settings_of(function, reduction, -1, 0, 0, softcap, temperature, smoothing, z_factor,
                                    e_threshold, c_threshold, workspace_budget, true, is_tf32)
                            .options;
  soft_target_tensors const given{e, c, entries, entry_weights, bias, weights, c_scale};
  return with_functions<rank_soft_targets_of, Device>(function, given, is_tf32, [&]<class Loss>(Loss) {
    return Loss::forward(given, settings, workspace, {rank, ranks, first, vocabulary, gather});
  });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> rank_soft_target_backward(
    Tensor e, Tensor c, Tensor entries, Tensor entry_weights, std::optional<Tensor> bias, std::optional<Tensor> weights,
    std::optional<Tensor> c_scale, std::int64_t reduction, double softcap, double temperature, double smoothing,
    double z_factor, double e_threshold, double c_threshold, std::int64_t workspace_budget, bool is_tf32,
    Tensor workspace, std::int64_t rank, std::int64_t ranks, std::int64_t first, std::int64_t vocabulary,
    std::optional<Tensor> by_loss, std::optional<Tensor> by_log_sum_exp, bool of_e, bool of_c, bool of_bias) {
  constexpr char const* function = "soft_target_cross_entropy";
  auto const settings = settings_of(function, reduction, -1, 0, 0, softcap, temperature, smoothing, z_factor,
                                    e_threshold, c_threshold, workspace_budget, true, is_tf32)
                            .options;
  soft_target_tensors const given{e, c, entries, entry_weights, bias, weights, c_scale};
  return with_functions<rank_soft_targets_of, Device>(function, given, is_tf32, [&]<class Loss>(Loss) {
    return Loss::backward(given, settings, workspace, {rank, ranks, first, vocabulary},
                          {by_loss, by_log_sum_exp, std::nullopt, of_e, of_c, of_bias});
  });
}

/// The bytes of the workspace of linear_distillation over ranks.
template <class Device>
std::int64_t rank_distillation_bytes(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c,
                                     std::optional<Tensor> weights, std::optional<Tensor> c_scale,
                                     std::optional<Tensor> teacher_c_scale, std::int64_t divergence, double beta,
                                     std::int64_t reduction, double temperature, double softcap, double teacher_softcap,
                                     std::int64_t workspace_budget, bool is_tf32, std::int64_t ranks,
                                     bool for_backward) {
  constexpr char const* function = "linear_distillation";
  auto const settings =
      distillation_settings_of(divergence, beta, reduction, temperature, softcap, teacher_softcap, workspace_budget);
  distillation_tensors const given{e, c, teacher_e, teacher_c, weights, c_scale, teacher_c_scale};
  return with_functions<rank_distillation_of, Device>(
      function, given, is_tf32, [&]<class Loss>(Loss) { return Loss::bytes(given, settings, ranks, for_backward); });
}

template <class Device>
Tensor rank_distillation_forward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c, std::optional<Tensor> weights,
                                 std::optional<Tensor> c_scale, std::optional<Tensor> teacher_c_scale,
                                 std::int64_t divergence, double beta, std::int64_t reduction, double temperature,
                                 double softcap, double teacher_softcap, std::int64_t workspace_budget, bool is_tf32,
                                 Tensor workspace, std::int64_t rank, std::int64_t ranks, std::int64_t first,
                                 std::int64_t vocabulary, std::int64_t gather) {
  constexpr char const* function = "linear_distillation";
  auto const settings =
      distillation_settings_of(divergence, beta, reduction, temperature, softcap, teacher_softcap, workspace_budget);
  distillation_tensors const given{e, c, teacher_e, teacher_c, weights, c_scale, teacher_c_scale};
  return with_functions<rank_distillation_of, Device>(function, given, is_tf32, [&]<class Loss>(Loss) {
    return Loss::forward(given, settings, workspace, {rank, ranks, first, vocabulary, gather});
  });
}

template <class Device>
std::tuple<Tensor, Tensor> rank_distillation_backward(
    Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c, std::optional<Tensor> weights,
    std::optional<Tensor> c_scale, std::optional<Tensor> teacher_c_scale, std::int64_t divergence, double beta,
    std::int64_t reduction, double temperature, double softcap, double teacher_softcap, std::int64_t workspace_budget,
    bool is_tf32, Tensor workspace, std::int64_t rank, std::int64_t ranks, std::int64_t first, std::int64_t vocabulary,
    std::optional<Tensor> by_loss, bool of_e, bool of_c) {
  constexpr char const* function = "linear_distillation";
  auto const settings =
      distillation_settings_of(divergence, beta, reduction, temperature, softcap, teacher_softcap, workspace_budget);
  distillation_tensors const given{e, c, teacher_e, teacher_c, weights, c_scale, teacher_c_scale};
  return with_functions<rank_distillation_of, Device>(function, given, is_tf32, [&]<class Loss>(Loss) {
    return Loss::backward(given, settings, workspace, {rank, ranks, first, vocabulary},
                          {by_loss, std::nullopt, std::nullopt, of_e, of_c, false});
  });
}

/// The bytes of the workspace of chosen_log_probabilities over ranks.
template <class Device>
std::int64_t rank_chosen_bytes(Tensor e, Tensor c, Tensor entries, Tensor log_sum_exp, std::optional<Tensor> bias,
                               std::optional<Tensor> c_scale, double, double, std::int64_t ranks, bool) {
  constexpr char const* function = "chosen_log_probabilities";
  check_dimensions(entries, 2, {function, "entries"});
  chosen_tensors const given{e, c, entries, log_sum_exp, bias, c_scale};
  return with_functions<rank_soft_targets_of, Device>(
      function, given, false, [&]<class Targets>(Targets) { return Targets::chosen_bytes(given, ranks); });
}

template <class Device>
Tensor rank_chosen_forward(Tensor e, Tensor c, Tensor entries, Tensor log_sum_exp, std::optional<Tensor> bias,
                           std::optional<Tensor> c_scale, double softcap, double temperature, Tensor workspace,
                           std::int64_t rank, std::int64_t ranks, std::int64_t first, std::int64_t vocabulary,
                           std::int64_t gather) {
  tessera::linear_loss_options const options{.softcap = static_cast<float>(softcap),
                                             .temperature = static_cast<float>(temperature)};
  chosen_tensors const given{e, c, entries, log_sum_exp, bias, c_scale};
  return with_functions<rank_soft_targets_of, Device>(
      "chosen_log_probabilities", given, false, [&]<class Targets>(Targets) {
        return Targets::chosen(given, options, workspace, {rank, ranks, first, vocabulary, gather});
      });
}

/// The bytes of the workspace of top_log_probabilities over ranks.
template <class Device>
std::int64_t rank_top_bytes(Tensor e, Tensor c, std::optional<Tensor> bias, std::optional<Tensor> c_scale,
                            std::int64_t k, double softcap, double temperature, bool is_tf32, std::int64_t ranks,
                            bool) {
  tessera::linear_loss_options const options{.softcap = static_cast<float>(softcap),
                                             .temperature = static_cast<float>(temperature)};
  top_tensors const given{e, c, bias, c_scale};
  return with_functions<rank_top_entries_of, Device>(
      "top_log_probabilities", given, is_tf32, [&]<class Top>(Top) { return Top::bytes(given, k, options, ranks); });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> rank_top_forward(Tensor e, Tensor c, std::optional<Tensor> bias,
                                                    std::optional<Tensor> c_scale, std::int64_t k, double softcap,
                                                    double temperature, bool is_tf32, Tensor workspace,
                                                    std::int64_t rank, std::int64_t ranks, std::int64_t first,
                                                    std::int64_t vocabulary, std::int64_t gather) {
  tessera::linear_loss_options const options{.softcap = static_cast<float>(softcap),
                                             .temperature = static_cast<float>(temperature)};
  top_tensors const given{e, c, bias, c_scale};
  return with_functions<rank_top_entries_of, Device>("top_log_probabilities", given, is_tf32, [&]<class Top>(Top) {
    return Top::forward(given, k, options, workspace, {rank, ranks, first, vocabulary, gather});
  });
}

}  // namespace tessera_torch
