// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// kernel_levels: one product in five levels, checked on the CPU and on the GPU, and timed there. See README.md.
///
/// Exit codes: 0: all results are right; 3: a result is wrong.
#include <cstdio>

#include <tessera/exec/cpu.hpp>

#include "../support/failure.hpp"
#include "../support/run_example.hpp"
#include "gpu_part.hpp"
#include "level_check.hpp"

int main() {
  using namespace tessera_examples;
  return run_example("kernel_levels", [] {
    text_table table({"level", "device", "rows", "columns", "depth", "error / bound", ""}, 2);
    bool right = check_portable_levels(cpu{}, "CPU", table);
    right = (!has_gpu() || check_on_gpu(table)) && right;
    table.print(stdout);
    require(exit_code::unsound, right, "a result is further from the truth than it may be");
    if (has_gpu()) {
      time_on_gpu();
    } else {
      std::printf("\nOn the CPU alone: no GPU, or built without CUDA and cuBLAS.\n");
    }
  });
}
