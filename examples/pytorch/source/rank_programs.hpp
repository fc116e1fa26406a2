// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The functions of ranks.hpp. Each type is compiled by itself, since that takes long.
#pragma once

#include <cstdint>
#include <tuple>

#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_distillation.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_entries.hpp>

#include "distillation_programs.hpp"
#include "loss_programs.hpp"
#include "ranks.hpp"
#include "soft_targets_programs.hpp"

namespace tessera_torch {

/// The workspace of both passes of a Method over ranks with gradients of a type, or of its forward pass alone.
template <class Method, class Gradient>
tessera::workspace_plan rank_plan_of(auto const& exec, std::int64_t ranks, auto const& shape, auto const& options,
                                     bool for_backward) {
  return for_backward ? Method::template plan_backward<Gradient>(exec, ranks, shape, options)
                      : Method::plan_forward(exec, ranks, shape, options);
}

template <class Device, class Operand>
std::int64_t rank_loss_of<Device, Operand>::bytes(loss_tensors const& given, loss_settings const& settings,
                                                  std::int64_t ranks, bool for_backward) {
  using programs = loss_programs<Device, Operand>;
  return programs::with_loss(settings, [&]<class Loss, class Gradient>(Loss, Gradient) {
    torch::stable::Device const device = device_of<Device>(given.e, {programs::function, "hidden states"});
    auto const in = programs::template inputs_of<Loss>(given, device);
    return loss_workspace<Device>::bytes_for(rank_plan_of<tessera::vocabulary_parallel<Loss>, Gradient>(
        Device::executor(device), ranks, programs::shape_of(in), settings.options, for_backward));
  });
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> rank_loss_of<Device, Operand>::forward(loss_tensors const& given,
                                                                                          loss_settings const& settings,
                                                                                          gradient_sums const& sums,
                                                                                          Tensor const& workspace,
                                                                                          rank_place const& place) {
  using programs = loss_programs<Device, Operand>;
  return programs::with_loss(settings, [&]<class Loss, class Gradient>(Loss, Gradient) {
    torch::stable::Device const device = device_of<Device>(given.e, {programs::function, "hidden states"});
    auto const in = programs::template inputs_of<Loss>(given, device);
    programs::check_sums(given, sums);
    auto const space = loss_workspace<Device>::begun(programs::function, workspace, device);
    loss_outputs const made(device, settings, in.hidden.extent(0));
    torch_ranks ranks(programs::function, place, workspace);
    tessera::vocabulary_parallel<Loss>::forward(Device::executor(device), ranks, in, place.part, settings.options,
                                                made.views(), space.room());
    return std::tuple(made.loss, made.log_sum_exp, made.log_probability, made.entropy, made.prediction);
  });
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> rank_loss_of<Device, Operand>::backward(loss_tensors const& given,
                                                                           loss_settings const& settings,
                                                                           Tensor const& workspace,
                                                                           rank_place const& place,
                                                                           loss_gradient_request const& wanted) {
  using programs = loss_programs<Device, Operand>;
  return programs::with_loss(settings, [&]<class Loss, class Gradient>(Loss, Gradient) {
    torch::stable::Device const device = device_of<Device>(given.e, {programs::function, "hidden states"});
    auto const in = programs::template inputs_of<Loss>(given, device);
    loss_workspace<Device> const space(programs::function, workspace, device);
    loss_gradients<Gradient> const made(programs::function, given.e, given.c, given.bias, wanted);
    torch_ranks const ranks(programs::function, place, workspace);
    tessera::vocabulary_parallel<Loss>::own_backward(
        Device::executor(device), ranks, in, place.part, settings.options,
        upstream_of(programs::function, wanted, settings.options.reduction, device), made.views, space.room(), {});
    return std::tuple(made.of_e, made.of_c, made.of_bias);
  });
}

template <class Device, class Operand>
std::int64_t rank_soft_targets_of<Device, Operand>::bytes(soft_target_tensors const& given,
                                                          tessera::linear_loss_options const& options,
                                                          std::int64_t ranks, bool for_backward) {
  using shared = soft_target_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  auto const in = shared::inputs_of(given, device);
  using method = tessera::vocabulary_parallel<typename shared::method>;
  return loss_workspace<Device>::bytes_for(rank_plan_of<method, typename shared::value_type>(
      Device::executor(device), ranks, shared::shape_of(in), options, for_backward));
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor> rank_soft_targets_of<Device, Operand>::forward(soft_target_tensors const& given,
                                                                          tessera::linear_loss_options const& options,
                                                                          Tensor const& workspace,
                                                                          rank_place const& place) {
  using shared = soft_target_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  auto const in = shared::inputs_of(given, device);
  auto const space = loss_workspace<Device>::begun(shared::function, workspace, device);
  Tensor const loss = room_for_losses(device, options.reduction, in.hidden.extent(0));
  Tensor const log_sum_exp = empty_on(device, {in.hidden.extent(0)}, ScalarType::Float);
  torch_ranks ranks(shared::function, place, workspace);
  tessera::vocabulary_parallel<typename shared::method>::forward(
      Device::executor(device), ranks, in, place.part, options, {writable<float>(loss), writable<float>(log_sum_exp)},
      space.room());
  return {loss, log_sum_exp};
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> rank_soft_targets_of<Device, Operand>::backward(
    soft_target_tensors const& given, tessera::linear_loss_options const& options, Tensor const& workspace,
    rank_place const& place, loss_gradient_request const& wanted) {
  using shared = soft_target_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  auto const in = shared::inputs_of(given, device);
  loss_workspace<Device> const space(shared::function, workspace, device);
  loss_gradients<typename shared::value_type> const made(shared::function, given.e, given.c, given.bias, wanted);
  torch_ranks const ranks(shared::function, place, workspace);
  tessera::vocabulary_parallel<typename shared::method>::own_backward(
      Device::executor(device), ranks, in, place.part, options,
      upstream_of(shared::function, wanted, options.reduction, device), made.views, space.room(), {});
  return {made.of_e, made.of_c, made.of_bias};
}

template <class Device, class Operand>
std::int64_t rank_distillation_of<Device, Operand>::bytes(distillation_tensors const& given,
                                                          distillation_settings const& settings, std::int64_t ranks,
                                                          bool for_backward) {
  using shared = distillation_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  return shared::with_divergence(settings, [&]<class D>(D const& divergence) {
    using method = tessera::vocabulary_parallel<tessera::linear_distillation<Operand, D>>;
    auto const in = shared::inputs_of(given, divergence, device);
    return loss_workspace<Device>::bytes_for(rank_plan_of<method, typename shared::value_type>(
        Device::executor(device), ranks, shared::shape_of(in), settings.options, for_backward));
  });
}

template <class Device, class Operand>
Tensor rank_distillation_of<Device, Operand>::forward(distillation_tensors const& given,
                                                      distillation_settings const& settings, Tensor const& workspace,
                                                      rank_place const& place) {
  using shared = distillation_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  return shared::with_divergence(settings, [&]<class D>(D const& divergence) {
    using method = tessera::vocabulary_parallel<tessera::linear_distillation<Operand, D>>;
    auto const in = shared::inputs_of(given, divergence, device);
    auto const space = loss_workspace<Device>::begun(shared::function, workspace, device);
    Tensor const loss = room_for_losses(device, settings.options.reduction, in.hidden.extent(0));
    torch_ranks ranks(shared::function, place, workspace);
    method::forward(Device::executor(device), ranks, in, place.part, settings.options, {writable<float>(loss)},
                    space.room());
    return loss;
  });
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor> rank_distillation_of<Device, Operand>::backward(distillation_tensors const& given,
                                                                           distillation_settings const& settings,
                                                                           Tensor const& workspace,
                                                                           rank_place const& place,
                                                                           loss_gradient_request const& wanted) {
  using shared = distillation_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  return shared::with_divergence(settings, [&]<class D>(D const& divergence) {
    using method = tessera::vocabulary_parallel<tessera::linear_distillation<Operand, D>>;
    auto const in = shared::inputs_of(given, divergence, device);
    loss_workspace<Device> const space(shared::function, workspace, device);
    loss_gradients<typename shared::value_type> const made(shared::function, given.e, given.c, std::nullopt, wanted);
    auto const upstream = upstream_of(shared::function, wanted, settings.options.reduction, device);
    torch_ranks const ranks(shared::function, place, workspace);
    method::own_backward(Device::executor(device), ranks, in, place.part, settings.options, upstream.loss, made.views,
                         space.room(), {});
    return std::tuple(made.of_e, made.of_c);
  });
}

}  // namespace tessera_torch
