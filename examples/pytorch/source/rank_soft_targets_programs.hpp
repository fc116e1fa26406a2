// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The functions of ranks.hpp for soft targets and chosen entries.
#pragma once

#include <cstdint>
#include <tuple>

#include <tessera/algorithm/loss/vocabulary_parallel_entries.hpp>

#include "ranks.hpp"
#include "soft_targets_programs.hpp"

namespace tessera_torch {

template <class Device, class Operand>
std::int64_t rank_soft_targets_of<Device, Operand>::bytes(soft_target_tensors const& given,
                                                          tessera::linear_loss_options const& options,
                                                          std::int64_t ranks, bool for_backward) {
  using shared = soft_target_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  auto const in = shared::inputs_of(given, device);
  using method = tessera::vocabulary_parallel<typename shared::method>;
  return loss_workspace<Device>::bytes_for(rank_plan_of<method, typename shared::gradient_type>(
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
  loss_gradients<typename shared::gradient_type> const made(shared::function, given.e, given.c, given.bias, wanted);
  torch_ranks const ranks(shared::function, place, workspace);
  tessera::vocabulary_parallel<typename shared::method>::own_backward(
      Device::executor(device), ranks, in, place.part, options,
      upstream_of(shared::function, wanted, options.reduction, device), made.views, space.room(), {});
  return {made.of_e, made.of_c, made.of_bias};
}

template <class Device, class Operand>
std::int64_t rank_soft_targets_of<Device, Operand>::chosen_bytes(chosen_tensors const& given, std::int64_t ranks) {
  using method = tessera::vocabulary_parallel<typename chosen_programs<Device, Operand>::method>;
  return loss_workspace<Device>::bytes_for(method::plan_forward(ranks, given.entries.size(0), given.entries.size(1)));
}

template <class Device, class Operand>
Tensor rank_soft_targets_of<Device, Operand>::chosen(chosen_tensors const& given,
                                                     tessera::linear_loss_options const& options,
                                                     Tensor const& workspace, rank_place const& place) {
  using shared = chosen_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  auto const in = shared::inputs_of(given, device);
  auto const space = loss_workspace<Device>::begun(shared::function, workspace, device);
  Tensor const made = shared::room_for(in, device);
  torch_ranks ranks(shared::function, place, workspace);
  tessera::vocabulary_parallel<typename shared::method>::forward(Device::executor(device), ranks, in, place.part,
                                                                 options, writable<float, 2>(made), space.room());
  return made;
}

}  // namespace tessera_torch
