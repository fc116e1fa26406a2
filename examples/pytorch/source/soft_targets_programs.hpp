// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The functions of soft_targets.hpp. Each type is compiled by itself, since that takes long.
#pragma once

#include <tessera/algorithm/loss/chosen_log_probabilities.hpp>
#include <tessera/algorithm/loss/soft_target_loss.hpp>
#include <tessera/cut_cross_entropy.hpp>

#include "loss_programs.hpp"
#include "soft_targets.hpp"

namespace tessera_torch {

/// What the functions of soft_targets_of share.
template <class Device, class Operand>
struct soft_target_programs {
  static constexpr char const* function = "soft_target_cross_entropy";
  using classifiers = classifiers_of<Operand>;
  using value_type = typename classifiers::value_type;
  using gradient_type = typename classifiers::gradient_type;
  using label_loss = tessera::cut_cross_entropy_of<typename classifiers::operand, tessera::loss_statistics>;
  using method = tessera::soft_target_loss<typename classifiers::template method<label_loss>>;
  using inputs = typename method::template inputs<std::int64_t>;

  static inputs inputs_of(soft_target_tensors const& given, torch::stable::Device const& device) {
    return {.hidden = view_of<value_type, 2>(given.e, device, {function, "hidden states"}),
            .classifier = classifiers::rows_of(given.classifier(), device, {function, "rows of the classifier"}),
            .entries = view_of<std::int64_t, 2>(given.entries, device, {function, "entries"}),
            .entry_weights = view_of<float, 2>(given.entry_weights, device, {function, "weights of entries"}),
            .bias = list_if_any<value_type>(given.bias, device, {function, "biases"}),
            .weights = list_if_any<float>(given.weights, device, {function, "weights"})};
  }
  static tessera::soft_target_shape shape_of(inputs const& in) {
    return {in.hidden.extent(0), classifiers::count_of(in.classifier), in.hidden.extent(1), in.entries.extent(1)};
  }
};

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> soft_targets_of<Device, Operand>::forward(
    soft_target_tensors const& given, tessera::linear_loss_options const& options, bool for_backward) {
  using shared = soft_target_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  auto const& exec = Device::executor(device);
  auto const in = shared::inputs_of(given, device);
  auto const plan = plan_of<typename shared::method, typename shared::gradient_type>(exec, shared::shape_of(in),
                                                                                     options, for_backward);
  loss_workspace<Device> const space(device, plan.bytes());
  std::int64_t const tokens = in.hidden.extent(0);
  Tensor const loss = room_for_losses(device, options.reduction, tokens);
  Tensor const log_sum_exp = empty_on(device, {tokens}, ScalarType::Float);
  shared::method::forward(exec, in, options, {writable<float>(loss), writable<float>(log_sum_exp)},
                          tessera::workspace(plan, space.bytes()));
  return {loss, log_sum_exp, space.tensor};
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> soft_targets_of<Device, Operand>::backward(
    soft_target_tensors const& given, tessera::linear_loss_options const& options, Tensor const& workspace,
    loss_gradient_request const& wanted) {
  using shared = soft_target_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  auto const& exec = Device::executor(device);
  auto const in = shared::inputs_of(given, device);
  using gradient_type = typename shared::gradient_type;
  auto const plan = plan_of<typename shared::method, gradient_type>(exec, shared::shape_of(in), options, true);
  loss_workspace<Device> const space(shared::function, workspace, device);
  loss_gradients<gradient_type> const made(shared::function, given.e, given.c, given.bias, wanted);
  shared::method::backward(exec, in, options, upstream_of(shared::function, wanted, options.reduction, device),
                           made.views, tessera::workspace(plan, space.bytes()));
  return {made.of_e, made.of_c, made.of_bias};
}

/// What calls for chosen entries share.
template <class Device, class Operand>
struct chosen_programs {
  static constexpr char const* function = "chosen_log_probabilities";
  using classifiers = classifiers_of<Operand>;
  using value_type = typename classifiers::value_type;
  using method = typename classifiers::template method<tessera::chosen_log_probabilities<value_type>>;
  using inputs = typename method::template inputs<std::int64_t>;

  static inputs inputs_of(chosen_tensors const& given, torch::stable::Device const& device) {
    return {.hidden = view_of<value_type, 2>(given.e, device, {function, "hidden states"}),
            .classifier = classifiers::rows_of(given.classifier(), device, {function, "rows of the classifier"}),
            .entries = view_of<std::int64_t, 2>(given.entries, device, {function, "entries"}),
            .log_sum_exp = view_of<float, 1>(given.log_sum_exp, device, {function, "log-sum-exps"}),
            .bias = list_if_any<value_type>(given.bias, device, {function, "biases"})};
  }
  static Tensor room_for(inputs const& in, torch::stable::Device const& device) {
    return empty_on(device, {in.entries.extent(0), in.entries.extent(1)}, ScalarType::Float);
  }
};

template <class Device, class Operand>
Tensor soft_targets_of<Device, Operand>::chosen(chosen_tensors const& given,
                                                tessera::linear_loss_options const& options) {
  using shared = chosen_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  auto const in = shared::inputs_of(given, device);
  Tensor const made = shared::room_for(in, device);
  shared::method::forward(Device::executor(device), in, options, writable<float, 2>(made));
  return made;
}

}  // namespace tessera_torch
