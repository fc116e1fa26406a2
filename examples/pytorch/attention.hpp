// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SageAttention2 for tensors. tensors.hpp describes a Device.
#pragma once

#include <tuple>

#include <tessera/sage_attention2.hpp>

#include "backend.hpp"
#include "tensors.hpp"

namespace tessera_torch {

template <class Device>
class attention_on final : public attention_backend {
 public:
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor const& queries, torch::Tensor const& keys,
                                                   torch::Tensor const& values, bool is_causal, double scale) override {
    using method = tessera::sage_attention2;
    auto const& exec = Device::executor(queries.device());
    torch::Device const device = queries.device();
    tessera::attention_inputs<bfloat16> const in{view_of<bfloat16, 4>(queries, device, {"attention", "queries"}),
                                                 view_of<bfloat16, 4>(keys, device, {"attention", "keys"}),
                                                 view_of<bfloat16, 4>(values, device, {"attention", "values"})};
    auto const plan = method::plan_forward(exec, {in.queries.extent(0), in.queries.extent(1), in.keys.extent(1),
                                                  in.queries.extent(2), in.keys.extent(2), in.queries.extent(3)});
    auto space = scratch(exec, plan);
    torch::Tensor result = torch::empty(queries.sizes(), queries.options());
    torch::Tensor sums =
        torch::empty({queries.size(0), queries.size(1), queries.size(2)}, queries.options().dtype(torch::kFloat32));
    method::forward(exec, in, {.softmax_scale = static_cast<float>(scale), .is_causal = is_causal},
                    tessera::attention_outputs<bfloat16>{writable<bfloat16, 4>(result), writable<float, 3>(sums)},
                    tessera::workspace(plan, space));
    return {result, sums};
  }
};

}  // namespace tessera_torch
