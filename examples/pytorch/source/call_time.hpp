// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How long a call of attention takes in C++, which benchmarks/overhead.py compares with a call from Python.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "attention_request.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// Seconds of the host for a call of attention by 8 bits, on average over `calls` calls, with a workspace of PyTorch's
/// allocator and without checks of tensors. Tensors are batch x heads x tokens x channels in bfloat16. Does not wait.
template <class Device>
double attention_call_time(Tensor queries, Tensor keys, Tensor values, Tensor result, bool is_causal,
                           std::int64_t calls) {
  constexpr char const* function = "attention_call_time";
  tessera::check<tessera::value_error>(calls > 0, function, ": there are ", calls, " calls but must be at least ", 1);
  torch::stable::Device const device = device_of<Device>(queries, {function, "queries"});
  auto const heads_of = [&](Tensor const& tensor, char const* name) {
    static_cast<void>(view_of<bfloat16, 4>(tensor, device, {function, name}));
    heads_in_memory found{tensor.data_ptr(), {}, {}};
    for (std::size_t i = 0; i < 4; ++i) {
      found.extents[i] = tensor.sizes()[i];
      found.strides[i] = tensor.strides()[i];
    }
    return found;
  };
  attention_request request{
      device,
      ScalarType::BFloat16,
      {queries.size(0), queries.size(1), keys.size(1), queries.size(2), keys.size(2), queries.size(3), values.size(3)},
      {},
      heads_of(queries, "queries"),
      heads_of(keys, "keys"),
      heads_of(values, "values")};
  request.result = heads_of(result, "results");
  request.options.is_causal = is_causal;
  auto const began = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < calls; ++i) {
    attend<Device, eight_bits>(request);
  }
  std::chrono::duration<double> const took = std::chrono::steady_clock::now() - began;
  return took.count() / static_cast<double>(calls);
}

}  // namespace tessera_torch
