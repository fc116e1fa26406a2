// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The functions of ranks.hpp for distillation.
#pragma once

#include <cstdint>
#include <tuple>

#include <tessera/algorithm/loss/vocabulary_parallel_distillation.hpp>

#include "distillation_programs.hpp"
#include "ranks.hpp"

namespace tessera_torch {

template <class Device, class Operand>
std::int64_t rank_distillation_of<Device, Operand>::bytes(distillation_tensors const& given,
                                                          distillation_settings const& settings, std::int64_t ranks,
                                                          bool for_backward) {
  using shared = distillation_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  return shared::with_divergence(settings, [&]<class D>(D const& divergence) {
    using method = tessera::vocabulary_parallel<typename shared::template method<D>>;
    auto const in = shared::inputs_of(given, divergence, device);
    return loss_workspace<Device>::bytes_for(rank_plan_of<method, typename shared::gradient_type>(
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
    using method = tessera::vocabulary_parallel<typename shared::template method<D>>;
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
    using method = tessera::vocabulary_parallel<typename shared::template method<D>>;
    auto const in = shared::inputs_of(given, divergence, device);
    loss_workspace<Device> const space(shared::function, workspace, device);
    loss_gradients<typename shared::gradient_type> const made(shared::function, given.e, given.c, std::nullopt, wanted);
    auto const upstream = upstream_of(shared::function, wanted, settings.options.reduction, device);
    torch_ranks const ranks(shared::function, place, workspace);
    method::own_backward(Device::executor(device), ranks, in, place.part, settings.options, upstream.loss, made.views,
                         space.room(), {});
    return std::tuple(made.of_e, made.of_c);
  });
}

}  // namespace tessera_torch
