// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV with the paper's landmarks, in bf16: the same steps as in shadow_kv_bench.cu with 60 % of chunks in slots,
/// and the scores of landmarks alone.
#include <tessera/shadow_kv.hpp>

#include "support/offload_steps.cuh"

namespace {

using namespace tessera;

bench::registration const registered([] {
  bench::add_cuda("shadow/paper/score/128k",
                  [](benchmark::State& state) { bench::measure_scores<shadow_kv_paper>(state, {}); });
  bench::add_steps<shadow_kv_paper>("paper/decode/host", value_store::host, {60});
  bench::add_steps<bench::with_coded_values<shadow_kv_paper>>("paper/decode/fp8", value_store::host, {60});
  bench::add_steps<shadow_kv_paper>("paper/decode/device", value_store::device, {60});
});

}  // namespace
