// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The executor for CPUs. tensors.hpp describes a Device.
#pragma once

#include <cstdint>

#include <tessera/exec/cpu.hpp>

#include "tensors.hpp"

namespace tessera_torch {

struct cpu_device {
  using executor_type = tessera::cpu;
  static constexpr char const* name = "cpu";
  static constexpr bool is_host = true;
  static bool has(torch::stable::Device const& device) { return device.is_cpu(); }
  /// One for the process, whose errors wait() throws.
  static executor_type const& executor(torch::stable::Device const&);
  static Tensor host_bytes(std::int64_t bytes) { return bytes_on({torch::headeronly::DeviceType::CPU}, bytes); }
};

}  // namespace tessera_torch
