// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a reader may put into main.cu: a program for the CPU and the GPU.
#include <cstdio>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>

struct doubled {
  static constexpr int lanes = 32;
  struct scratch_type {};
  tessera::array_view<float> values;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int const lane : group) {
      values[which * lanes + lane] *= 2.0F;
    }
  }
};

template <class Executor>
void run(Executor const& exec) {
  tessera::buffer<float> values(exec, 64);
  exec.clear(values);
  exec.run(doubled{values.view()}, 2);
  exec.wait();
}

int main() {
  run(tessera::cpu{.threads = 1});
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    run(tessera::cuda{});
  }
  std::printf("%d devices\n", devices);
}
