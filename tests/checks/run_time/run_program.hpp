// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs a program of whole thread blocks in a kernel of one's own: its scratch, then what its group exchanges, lie in
/// the kernel's dynamic shared memory.
#pragma once

#include <tessera/concepts/program.hpp>
#include <tessera/tile/cuda/group.cuh>

template <class Program>
__device__ void run_program(Program const& program) {
  using scratch_type = tessera::scratch_for<Program, tessera::cuda_block<Program::lanes>>;
  extern __shared__ __align__(1024) unsigned char shared[];
  tessera::cuda_block<Program::lanes> const group{shared + (sizeof(scratch_type) + 15) / 16 * 16};
  program(group, blockIdx.x, *reinterpret_cast<scratch_type*>(shared));
}
