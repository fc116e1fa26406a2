// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The fast programs of a paged cache: tokens to pages, and attention over pages.
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/program/paged_cache/attend_pages.cuh>
#include <tessera/program/paged_cache/detail/page_fragments.cuh>
#include <tessera/program/paged_cache/write_pages.cuh>
#include <tessera/tuning/attention/decode.hpp>

#include "run_program.hpp"

using namespace tessera;

using attend = page_decode<page_columns<64, 1, 4, 4>, bfloat16, bfloat16, policy_of<page_decode_tuning<64, 4>>(900)>;
using compress = compress_pages<cache_page_format{64, 4, 4, 1, 2}, slerp_merger<float>, bfloat16>;

extern "C" __global__ void attend_pages(__grid_constant__ attend const program) {
  run_program(program);
}
extern "C" __global__ void write_pages(__grid_constant__ compress const program) {
  run_program(program);
}
