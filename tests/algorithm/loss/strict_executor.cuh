// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Executors of tests that are about fast programs.
#pragma once

#include <tessera/exec/cuda.cuh>

namespace tessera_test {

/// Takes the programs of GPUs without wgmma, on whatever GPU there is: for the only ones that a source is compiled for.
using ring_executor = tessera::basic_cuda<tessera::arch_list<800>>;

/// An executor that refuses slower programs, so that a test fails where a fast one would not run.
template <class Exec>
Exec strict() {
  Exec exec;
  exec.options.refuses_slower_programs = true;
  return exec;
}

}  // namespace tessera_test
