// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>

#include "operations.hpp"

namespace tessera_torch {
namespace {

struct cpu_device {
  using executor_type = tessera::cpu;
  static executor_type const& executor(torch::Device) {
    static executor_type const exec;
    return exec;
  }
  static torch::Tensor host_bytes(std::int64_t bytes) { return bytes_on(torch::kCPU, bytes); }
};

}  // namespace

backend& cpu_backend() {
  static backend_on<cpu_device> found;
  return found;
}

}  // namespace tessera_torch
