// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures what sage_attention2 costs where a part of it is exchanged: with a bias that is a function, linear, or in
/// memory, or with smoothed queries. The exchange and the alias run in turns, from bf16 to bf16 ("forward") or over
/// codes that were made before ("codes"); `of_alias` is the exchange's speed over the alias's. Errors are those of 256
/// rows against attention in double with the same bias.
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_problem.cuh"
#include "support/attention_runs.cuh"
#include "support/cuda.cuh"
#include "support/timing.cuh"

namespace {

using namespace tessera;
using bench::attention_problem;

/// A bias that a user writes: it falls with the distance, by a slope for each head.
struct bias_function {
  std::int64_t heads;
  TESSERA_FN float operator()(std::int64_t, std::int64_t head, std::int32_t query, std::int32_t key) const {
    float const slope = 1.0F / static_cast<float>(heads + 16 * head);
    return slope * static_cast<float>(key - query);
  }
};

/// sage_attention2 with smoothed queries.
using smoothed_queries = attention<smoothed<smoothed<symmetric_quantizer<8, per_thread>, sampled_mean>, block_mean>,
                                   sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;

/// A method's workspace, and its calls.
template <class Method, class Bias>
class exchange {
 public:
  exchange(attention_problem& problem, Bias const& bias)
      : problem_(problem),
        plan_(Method::plan_forward(problem.exec(), problem.shape())),
        memory_(problem.exec(), plan_.bytes()),
        bias_(bias) {
    Method::quantize(problem.exec(), problem.shape(), problem.inputs(), {}, codes(), space());
  }
  void forward() const {
    Method::forward(problem_.exec(), problem_.inputs(), problem_.options(), problem_.outputs(), space(),
                    attention_functions<Bias>{bias_});
  }
  void over_codes() const {
    attention_shape const& shape = problem_.shape();
    attention_call<typename Method::method, bfloat16, Bias> call{shape, problem_.options(), codes(),
                                                                 problem_.outputs()};
    call.bias = bias_;
    call.counters = Method::counters(shape, space());
    call.partials = Method::partials(shape, space());
    call.work_splits = Method::work_splits(problem_.exec(), shape, space());
    Method::forward(problem_.exec(), call);
  }

 private:
  workspace space() const { return workspace(plan_, memory_); }
  typename Method::heads codes() const {
    auto operands = Method::operands(problem_.shape(), space());
    operands.queries.mean_scores = {};
    return operands;
  }

  attention_problem& problem_;
  workspace_plan plan_;
  buffer<std::byte> mutable memory_;
  Bias bias_;
};

template <class Method, class Bias>
void measure(benchmark::State& state, bool has_codes, attention_problem& problem, Bias const& bias) {
  exchange<Method, Bias> const ours(problem, bias);
  exchange<sage_attention2, no_bias> const alias(problem, {});
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        problem.exec().stream, [&] { has_codes ? ours.over_codes() : ours.forward(); },
        [&] { has_codes ? alias.over_codes() : alias.forward(); });
    state.SetIterationTime(seconds.ours);
  }
  ours.forward();
  auto const distance = problem.distance(bias);
  state.counters["of_alias"] = seconds.peer / seconds.ours;
  state.counters["relative_l1"] = distance.relative_l1;
  if (!(distance.relative_l1 < 0.05)) {
    throw std::runtime_error("the relative L1 error is " + std::to_string(distance.relative_l1));
  }
  bench::report_cuda(state, seconds.ours, {.operations = problem.operations()});
}

constexpr attention_shape shape_of(int channels) {
  return channels == 64 ? attention_shape{2, 32, 32, 16384, 16384, 64} : attention_shape{2, 16, 16, 16384, 16384, 128};
}

template <class Method, class MakeBias>
void add(std::string const& what, MakeBias make_bias) {
  for (int const channels : {128, 64}) {
    for (bool const is_causal : {false, true}) {
      for (bool const has_codes : {false, true}) {
        std::string const name = "exchange/attention/" + what + (has_codes ? "/codes" : "/forward") + "/bf16/d" +
                                 std::to_string(channels) + "/16k" + (is_causal ? "/causal" : "");
        bench::add_cuda(name, [=](benchmark::State& state) {
          attention_problem problem(shape_of(channels), is_causal);
          auto const held = make_bias(problem);
          measure<Method>(state, has_codes, problem, held.bias());
        });
      }
    }
  }
}

/// A bias without memory.
template <class Bias>
struct held_value {
  Bias value;
  Bias bias() const { return value; }
};
/// The slopes of a linear_bias.
struct held_slopes {
  std::unique_ptr<bench::device_array<float>> memory;
  linear_bias bias() const { return {{memory->data(), static_cast<std::int64_t>(memory->size())}}; }
};
/// The memory of a dense_bias that all heads share.
struct held_biases {
  std::unique_ptr<bench::device_array<bfloat16>> memory;
  attention_shape shape;
  dense_bias<bfloat16> bias() const {
    return {{memory->data(), {shape.batch, shape.query_heads, shape.queries, shape.keys}, {0, 0, shape.keys, 1}}};
  }
};

bench::registration const registered([] {
  add<sage_attention2>("bias_function", [](attention_problem& problem) {
    return held_value<bias_function>{{problem.shape().query_heads}};
  });
  add<sage_attention2>("linear_bias", [](attention_problem& problem) {
    std::int64_t const heads = problem.shape().query_heads;
    std::vector<float> slopes;
    for (std::int64_t head = 1; head <= heads; ++head) {
      slopes.push_back(std::exp2(-8.0F * static_cast<float>(head) / static_cast<float>(heads)));  // as in the paper
    }
    auto memory = std::make_unique<bench::device_array<float>>(problem.memory(), slopes.size());
    bench::check(cudaMemcpyAsync(memory->data(), slopes.data(), memory->bytes(), cudaMemcpyHostToDevice,
                                 problem.memory().stream()),
                 "cudaMemcpyAsync");
    problem.memory().wait();
    return held_slopes{std::move(memory)};
  });
  add<sage_attention2>("dense_bias", [](attention_problem& problem) {
    std::int64_t const tokens = problem.shape().queries;
    auto memory =
        std::make_unique<bench::device_array<bfloat16>>(problem.memory(), static_cast<std::size_t>(tokens * tokens));
    bench::fill_head<<<2048, 256, 0, problem.memory().stream()>>>(testing::gauss{}, 9, memory->data(), tokens * tokens);
    bench::check(cudaGetLastError(), "fill_head");
    return held_biases{std::move(memory), problem.shape()};
  });
  add<smoothed_queries>("smoothed_queries", [](attention_problem&) { return held_value<no_bias>{}; });
});

}  // namespace
