// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures dense_attention: attention over queries, keys and values in bf16 as they are.
///
/// Data have offsets (support/attention_problem.cuh), except where the name ends in `normal`: those are N(0, 1).
/// `TFLOPs` counts 4 operations for each channel of each pair of a query and a key that a sequence really has, half of
/// the pairs if causal. Errors are those of 256 rows against attention in double. `ms` is the median of cold calls,
/// back to back so that the clock is that of full load. bench/peers/attention.py measures others on such data.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/exec/buffer.hpp>

#include "support/attention_problem.cuh"
#include "support/cuda.cuh"

namespace {

using namespace tessera;
using bench::attention_data;

/// Keeps the last problem, since repetitions with the same one follow each other.
bench::attention_problem& dense_problem_of(attention_shape const& shape, bool is_causal,
                                           std::vector<std::int32_t> const& lengths, attention_data data) {
  static std::unique_ptr<bench::attention_problem> last;
  if (last == nullptr || !(last->shape() == shape) || last->options().is_causal != is_causal ||
      last->lengths() != lengths || last->data() != data) {
    last.reset();  // first, so that two are never in memory
    last = std::make_unique<bench::attention_problem>(shape, is_causal, lengths, data);
  }
  return *last;
}

void measure_dense(benchmark::State& state, attention_shape const& shape, bool is_causal,
                   std::vector<std::int32_t> const& lengths, attention_data data) {
  bench::attention_problem& problem = dense_problem_of(shape, is_causal, lengths, data);
  auto const& exec = problem.exec();
  auto const plan = dense_attention::plan_forward(exec, shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto const run = [&](cudaStream_t) {
    dense_attention::forward(exec, problem.inputs(), problem.options(), problem.outputs(), space);
  };
  constexpr double wanted_seconds = 0.5;
  int rounds = 1;
  if (!bench::only_starts()) {
    double const once = bench::median_cold_seconds(exec.stream, 3, run);
    rounds = std::clamp(static_cast<int>(wanted_seconds / once), 15, 200);
  }
  double seconds = 0;
  for (auto _ : state) {
    seconds = bench::median_cold_seconds(exec.stream, rounds, run);
    state.SetIterationTime(seconds);
  }
  auto const distance = problem.distance();
  state.counters["ms"] = 1e3 * seconds;
  state.counters["relative_l1"] = distance.relative_l1;
  state.counters["cosine"] = distance.cosine;
  if (!(distance.relative_l1 < 0.01)) {
    throw std::runtime_error("the relative L1 error is " + std::to_string(distance.relative_l1));
  }
  bench::report_cuda(state, seconds, {.operations = problem.operations()});
}

void add_dense(std::string const& name, attention_shape const& shape, std::vector<std::int32_t> const& lengths = {},
               attention_data data = attention_data::with_offsets) {
  for (bool const is_causal : {false, true}) {
    std::string const kind = data == attention_data::normal ? "/normal" : "";
    bench::add_cuda("dense_attention/forward/bf16/" + name + (is_causal ? "/causal" : "") + kind,
                    [=](benchmark::State& state) { measure_dense(state, shape, is_causal, lengths, data); });
  }
}

bench::registration const dense_registered([] {
  add_dense("d128/4k", {8, 16, 16, 4096, 4096, 128});
  add_dense("d128/16k", {2, 16, 16, 16384, 16384, 128});
  add_dense("d128/32k", {1, 8, 8, 32768, 32768, 128});
  add_dense("d128/16k", {2, 16, 16, 16384, 16384, 128}, {}, attention_data::normal);
  add_dense("d128/16k_64_query_8_key_heads", {1, 64, 8, 16384, 16384, 128});
  add_dense("d128/8_heads/256_queries/32k", {1, 8, 8, 256, 32768, 128});
  add_dense("d64/16k", {2, 32, 32, 16384, 16384, 64});
  add_dense("d256/16k", {1, 16, 16, 16384, 16384, 256});
  add_dense("d96/16k", {2, 16, 16, 16384, 16384, 96});
  add_dense("d128/lengths_1k_to_8k", {4, 16, 16, 8192, 8192, 128}, {1024, 8192, 3413, 5802});
});

}  // namespace
