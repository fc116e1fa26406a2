// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SageAttention2 for tensors. tensors.hpp describes a Device.
#pragma once

#include <cstdint>
#include <tuple>

#include <tessera/sage_attention2.hpp>

#include "tensors.hpp"

namespace tessera_torch {

/// Attends; tensors are batch x heads x tokens x channels in any strides. Gives the result and log-sum-exps.
template <class Device>
std::tuple<Tensor, Tensor> attention(Tensor queries, Tensor keys, Tensor values, bool is_causal, double scale) {
  using method = tessera::sage_attention2;
  torch::stable::Device const device = device_of<Device>(queries, {"attention", "queries"});
  auto const& exec = Device::executor(device);
  tessera::attention_inputs<bfloat16> const in{view_of<bfloat16, 4>(queries, device, {"attention", "queries"}),
                                               view_of<bfloat16, 4>(keys, device, {"attention", "keys"}),
                                               view_of<bfloat16, 4>(values, device, {"attention", "values"})};
  auto const plan = method::plan_forward(exec, {in.queries.extent(0), in.queries.extent(1), in.keys.extent(1),
                                                in.queries.extent(2), in.keys.extent(2), in.queries.extent(3)});
  auto space = scratch(exec, plan);
  Tensor result = empty_as<bfloat16>(queries);
  Tensor sums = empty_on(device, {in.queries.extent(0), in.queries.extent(1), in.queries.extent(2)}, ScalarType::Float);
  method::forward(exec, in, {.softmax_scale = static_cast<float>(scale), .is_causal = is_causal},
                  tessera::attention_outputs<bfloat16>{writable<bfloat16, 4>(result), writable<float, 3>(sums)},
                  tessera::workspace(plan, space));
  return {result, sums};
}

}  // namespace tessera_torch
