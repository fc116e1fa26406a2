// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The functions of ranks.hpp for the likeliest entries.
#pragma once

#include <cstdint>
#include <tuple>

#include <tessera/algorithm/loss/vocabulary_parallel.hpp>

#include "ranks.hpp"
#include "top_entries_programs.hpp"

namespace tessera_torch {

template <class Device, class Operand>
std::int64_t rank_top_entries_of<Device, Operand>::bytes(top_tensors const& given, std::int64_t k,
                                                         tessera::linear_loss_options const& options,
                                                         std::int64_t ranks) {
  return with_entries(k, [&]<int K>(std::integral_constant<int, K>) {
    using program = top_entries_program<Device, Operand, K>;
    torch::stable::Device const device = device_of<Device>(given.e, {program::function, "hidden states"});
    auto const in = program::inputs_of(given, device, program::labels_for(given, device));
    return loss_workspace<Device>::bytes_for(tessera::vocabulary_parallel<typename program::loss>::plan_forward(
        Device::executor(device), ranks, program::shape_of(in), options));
  });
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> rank_top_entries_of<Device, Operand>::forward(
    top_tensors const& given, std::int64_t k, tessera::linear_loss_options const& options, Tensor const& workspace,
    rank_place const& place) {
  return with_entries(k, [&]<int K>(std::integral_constant<int, K>) {
    using program = top_entries_program<Device, Operand, K>;
    torch::stable::Device const device = device_of<Device>(given.e, {program::function, "hidden states"});
    Tensor const labels = program::labels_for(given, device);
    auto const in = program::inputs_of(given, device, labels);
    program::check_count(k, place.part.vocabulary);
    auto const space = loss_workspace<Device>::begun(program::function, workspace, device);
    typename program::results made(device, in.hidden.extent(0));
    torch_ranks ranks(program::function, place, workspace);
    tessera::vocabulary_parallel<typename program::loss>::forward(Device::executor(device), ranks, in, place.part,
                                                                  options, made.views(), space.room(), made.finish());
    return made.of_columns(k);
  });
}

}  // namespace tessera_torch
