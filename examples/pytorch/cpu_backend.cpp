// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>

#include "attention.hpp"
#include "caches.hpp"
#include "loss.hpp"
#include "weights.hpp"

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
  static weights_on<cpu_device> weights;
  static loss_on<cpu_device> loss;
  static attention_on<cpu_device> attention;
  static caches_on<cpu_device> caches;
  static backend found{weights, loss, attention, caches,
                       [](torch::Device device) { cpu_device::executor(device).wait(); }};
  return found;
}

}  // namespace tessera_torch
