// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV with quest's landmarks, the box around each chunk's keys in bf16: steps with 60 % of chunks in slots, in
/// turns with those of shadow_kv, and the scores of landmarks alone. `of_shadow_kv`: the time of shadow_kv's step over
/// that of this one, the median of turns. A box is four times the bytes of shadow_kv's landmark.
#include <tessera/select/quest.hpp>
#include <tessera/shadow_kv.hpp>

#include "support/offload_steps.cuh"

namespace {

using namespace tessera;
using quest_cache = offloaded_cache<low_rank<160>, quest_selector<8>, keep_outliers<48>>;

bench::registration const registered([] {
  using coded = bench::with_coded_values<quest_cache>;
  using coded_shadow = bench::with_coded_values<shadow_kv>;
  bench::add_cuda("shadow/quest/score/128k",
                  [](benchmark::State& state) { bench::measure_scores<quest_cache>(state, {}); });
  bench::add_cuda("shadow/quest/decode/host/hit60/128k", [](benchmark::State& state) {
    bench::measure_step_in_turns<quest_cache, shadow_kv>(state, {16, 131072, value_store::host}, 0.6);
  });
  bench::add_cuda("shadow/quest/decode/fp8/hit60/128k", [](benchmark::State& state) {
    bench::measure_step_in_turns<coded, coded_shadow>(state, {16, 131072, value_store::host}, 0.6);
  });
  bench::add_cuda("shadow/quest/decode/device/hit60/128k", [](benchmark::State& state) {
    bench::measure_step_in_turns<quest_cache, shadow_kv>(state, {16, 131072, value_store::device}, 0.6);
  });
});

}  // namespace
