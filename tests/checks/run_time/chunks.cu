// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The fast programs of an offloaded cache: scores of chunks, their selection, and attention over them.
#include <tessera/core/bfloat16.hpp>
#include <tessera/program/offloaded_cache/attend_chunks.cuh>
#include <tessera/program/offloaded_cache/score_chunks.cuh>
#include <tessera/program/offloaded_cache/select_chunks.cuh>
#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/select/coded_landmark.hpp>

#include "run_program.hpp"

using namespace tessera;

using selector = coded_landmark_selector<8>;
using attend = attend_rows<64, bfloat16, chunk_landmarks<selector>::element_type>;
using score = score_means<64, 4, selector>;
using choose = choose_largest<bfloat16, selector>;

extern "C" __global__ void score_means_of_chunks(__grid_constant__ score const program) {
  run_program(program);
}
extern "C" __global__ void choose_chunks(__grid_constant__ choose const program) {
  run_program(program);
}
extern "C" __global__ void attend_to_chunks(__grid_constant__ attend const program) {
  run_program(program);
}
