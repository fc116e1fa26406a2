// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The functions of ranks.hpp for the loss of labels.
#pragma once

#include <cstdint>
#include <tuple>

#include <tessera/algorithm/loss/vocabulary_parallel.hpp>

#include "loss_programs.hpp"
#include "ranks.hpp"

namespace tessera_torch {

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

}  // namespace tessera_torch
