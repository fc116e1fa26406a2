// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Kinds of devices as attention's sources know them.
#pragma once

#include "cpu_device.hpp"
#if defined(__CUDACC__)
#include <torch/csrc/stable/accelerator.h>

#include "cuda_device.hpp"
#endif

namespace tessera_torch {

struct attention_on_cpu : cpu_device {
  static constexpr bool has_fast_biases = false;  ///< whether linear and dense biases have programs of their own
  /// Makes a device the current one for as long as it lives.
  struct guard {
    explicit guard(torch::stable::Device const&) {}
  };
};

#if defined(__CUDACC__)
struct attention_on_cuda : cuda_device {
  static constexpr bool has_fast_biases = true;
  struct guard {
    explicit guard(torch::stable::Device const& device) : inner(device.index()) {}
    torch::stable::accelerator::DeviceGuard inner;
  };
};
#endif

}  // namespace tessera_torch
