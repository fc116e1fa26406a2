// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures what dense_attention in bf16 costs where a part is exchanged: with a bias that is linear, in memory or
/// a function, with lists of half of the tiles, or with results in fp32. The exchange and the plain call run in turns.
/// `of_plain` is the exchange's speed over the plain one's, with lists the speed for each tile that a block of 64
/// queries visits. Errors are those of 256 rows against attention in double with the same bias.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/map/no_bias.hpp>

#include "support/attention_problem.cuh"
#include "support/attention_terms.cuh"
#include "support/cuda.cuh"
#include "support/timing.cuh"

namespace {

using namespace tessera;

__global__ void round_results(float const* from, bfloat16* to, std::int64_t count) {
  std::int64_t const step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = store<bfloat16>(from[i]);
  }
}

/// A call of dense attention on a problem, which leaves results of a type in memory of its own.
template <class Result, class Bias>
class dense_exchange {
 public:
  dense_exchange(bench::attention_problem& problem, Bias const& bias, attention_block_list const& list)
      : problem_(problem),
        bias_(bias),
        list_(list),
        plan_(dense_attention::plan_forward(problem.exec(), problem.shape())),
        memory_(problem.exec(), plan_.bytes()),
        floats_(problem.exec(), std::is_same_v<Result, float> ? problem.outputs().result.size() : 0) {}
  void operator()() const {
    attention_inputs<bfloat16> in = problem_.inputs();
    in.block_list = list_;
    dense_attention::forward(problem_.exec(), in, problem_.options(), outputs(), workspace(plan_, memory_),
                             attention_functions<Bias>{bias_});
  }
  /// Leaves results of another type where the problem expects them.
  void round() const {
    if constexpr (std::is_same_v<Result, float>) {
      round_results<<<2048, 256, 0, problem_.exec().stream>>>(floats_.data(), problem_.outputs().result.data,
                                                              floats_.size());
      bench::check(cudaGetLastError(), "round_results");
    }
  }

 private:
  attention_outputs<Result> outputs() const {
    if constexpr (std::is_same_v<Result, float>) {
      attention_shape const& s = problem_.shape();
      return {{floats_.data(), {s.batch, s.query_heads, s.queries, s.channels}}};
    } else {
      return problem_.outputs();
    }
  }

  bench::attention_problem& problem_;
  Bias bias_;
  attention_block_list list_;
  workspace_plan plan_;
  buffer<std::byte> mutable memory_;
  buffer<Result> mutable floats_;
};

/// `expected`: the bias in double, lists included. `part`: the part of the tiles that is visited.
template <class Result, class Bias, class Expected>
void measure_dense_exchange(benchmark::State& state, bench::attention_problem& problem, Bias const& bias,
                            Expected const& expected, attention_block_list const& list = {}, double part = 1) {
  dense_exchange<Result, Bias> const ours(problem, bias, list);
  dense_exchange<bfloat16, no_bias> const plain(problem, {}, {});
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(problem.exec().stream, ours, plain);
    state.SetIterationTime(seconds.ours);
  }
  ours();
  ours.round();
  auto const distance = problem.distance(expected);
  state.counters["of_plain"] = part * seconds.peer / seconds.ours;
  state.counters["relative_l1"] = distance.relative_l1;
  if (!(distance.relative_l1 < 0.01)) {
    throw std::runtime_error("the relative L1 error is " + std::to_string(distance.relative_l1));
  }
  bench::report_cuda(state, seconds.ours, {.operations = part * problem.operations()});
}

/// Adds `measure`(state, problem) for each problem.
template <class Measure>
void add_dense_exchange(std::string const& what, Measure measure) {
  for (int const channels : {128, 64, 256}) {
    for (bool const is_causal : {false, true}) {
      bench::add_cuda("exchange/dense_attention/" + what + "/bf16/d" + std::to_string(channels) + "/16k" +
                          (is_causal ? "/causal" : ""),
                      [=](benchmark::State& state) {
                        std::int64_t const batch = channels == 256 ? 1 : 2;
                        std::int64_t const heads = channels == 64 ? 32 : 16;
                        bench::attention_problem problem({batch, heads, heads, 16384, 16384, channels}, is_causal);
                        measure(state, problem);
                      });
    }
  }
}

bench::registration const dense_exchanges_registered([] {
  add_dense_exchange("linear_bias", [](benchmark::State& state, bench::attention_problem& problem) {
    bench::held_slopes const held(problem);
    measure_dense_exchange<bfloat16>(state, problem, held.bias(), held.bias());
  });
  add_dense_exchange("dense_bias", [](benchmark::State& state, bench::attention_problem& problem) {
    bench::held_biases const held(problem);
    measure_dense_exchange<bfloat16>(state, problem, held.bias(), held.bias());
  });
  add_dense_exchange("bias_function", [](benchmark::State& state, bench::attention_problem& problem) {
    bench::bias_function const bias{problem.shape().query_heads};
    measure_dense_exchange<bfloat16>(state, problem, bias, bias);
  });
  add_dense_exchange("float_results", [](benchmark::State& state, bench::attention_problem& problem) {
    measure_dense_exchange<float>(state, problem, no_bias{}, no_bias{});
  });
  for (std::int64_t const together : {1, 2}) {
    add_dense_exchange(together == 1 ? "block_list" : "block_list_of_128", [=](benchmark::State& state,
                                                                               bench::attention_problem& problem) {
      bench::half_lists const lists(problem, together);
      measure_dense_exchange<bfloat16>(state, problem, no_bias{}, bench::outside_of_lists{lists.list()}, lists.list(),
                                       lists.part());
    });
  }
});

}  // namespace
