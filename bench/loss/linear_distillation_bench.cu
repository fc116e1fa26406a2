// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures distillation: divergences of a student from a teacher with as large a classifier, and the student's
/// gradients.
///
/// `ms` is the median of calls of both passes, in turns with those of the student's exact cross-entropy, `exact_ms`.
/// `over_exact` is the rate of the products that distillation needs (6, or 8 with jensen_shannon) over the rate of the
/// loss's 4: 1 if a product took the same time in both; for those with a budget products are counted as they are made
/// with gradients by logits of all tokens kept, 4. `extra_MiB` is what the plan says. Benchmarks whose names have an
/// amount of memory have a budget with which the whole workspace is at most so large. `hidden_error`,
/// `classifier_error`: relative distances of gradients from those in double, of 128 tokens and all entries.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>

#include "support/cuda.cuh"
#include "support/distillation_check.cuh"
#include "support/loss_problem.cuh"
#include "support/loss_runs.cuh"

namespace {

using namespace tessera;
using bench::loss_data;
using bench::loss_problem;

/// The student's problem, and a teacher of the same extents whose classifier has another deviation.
struct distillation_data {
  loss_problem student;
  buffer<bfloat16> teacher_hidden{student.exec(), student.hidden().size()};
  buffer<bfloat16> teacher_classifier{student.exec(), student.classifier().size()};

  explicit distillation_data(linear_loss_shape const& shape) : student(loss_data::spread, shape) {
    loss_problem const other(loss_data::flat, shape);
    copy(other.hidden(), teacher_hidden);
    copy(other.classifier(), teacher_classifier);
    student.exec().wait();
  }

 private:
  void copy(matrix_view<bfloat16 const> from, buffer<bfloat16>& to) {
    bench::check(cudaMemcpyAsync(to.data(), from.data, static_cast<std::size_t>(from.size()) * sizeof(bfloat16),
                                 cudaMemcpyDeviceToDevice, student.exec().stream),
                 "cudaMemcpyAsync");
  }
};

/// The problem of these extents. One is kept, because repetitions with the same one follow each other.
distillation_data& data_of(linear_loss_shape const& shape) {
  static std::unique_ptr<distillation_data> last;
  if (last == nullptr || last->student.shape().vocabulary != shape.vocabulary) {
    last.reset();
    last = std::make_unique<distillation_data>(shape);
  }
  return *last;
}

template <class D>
constexpr bench::known_divergence known = std::is_same_v<D, forward_kl>   ? bench::known_divergence::forward_kl
                                          : std::is_same_v<D, reverse_kl> ? bench::known_divergence::reverse_kl
                                                                          : bench::known_divergence::jensen_shannon;

/// Both passes of the first tokens of a problem, and what they need.
template <class D>
struct distillation_run {
  using loss = linear_distillation<bfloat16, D>;

  distillation_data& data;
  std::int64_t tokens;
  distillation_options options;
  linear_loss_shape shape = data.student.shape();
  cuda const& exec = data.student.exec();
  bench::device_array<bfloat16> hidden{data.student.memory(), static_cast<std::size_t>(tokens* shape.channels)};
  bench::device_array<bfloat16> classifier{data.student.memory(),
                                           static_cast<std::size_t>(shape.vocabulary* shape.channels)};
  workspace_plan plan = loss::plan_backward(exec, {tokens, shape.vocabulary, shape.channels, shape.channels}, options);
  buffer<std::byte> memory{exec, plan.bytes()};
  buffer<float> value{exec, 1};
  typename loss::inputs in{{data.student.hidden().data, {tokens, shape.channels}},
                           data.student.classifier(),
                           {data.teacher_hidden.data(), {tokens, shape.channels}},
                           {data.teacher_classifier.data(), {shape.vocabulary, shape.channels}}};
  linear_loss_gradients<bfloat16> out{{hidden.data(), {tokens, shape.channels}},
                                      {classifier.data(), {shape.vocabulary, shape.channels}}};

  void operator()() {
    workspace const space(plan, memory);
    loss::forward(exec, in, options, {.loss = value.view()}, space);
    loss::backward(exec, in, options, {}, out, space);
  }
};

/// The errors of gradients of the first 128 tokens.
template <class D>
void count_errors(benchmark::State& state, distillation_data& data, distillation_options const& options) {
  distillation_run<D> run{data, 128, options};
  run();
  bench::distillation_in_double const expected(data.student.memory(), known<D>, run.in.hidden, run.in.classifier,
                                               run.in.teacher_hidden, run.in.teacher_classifier);
  double const of_hidden = bench::relative_distance(run.hidden, expected.hidden, data.student.memory());
  double const of_classifier = bench::relative_distance(run.classifier, expected.classifier, data.student.memory());
  bench::require_at_most(of_hidden, 5e-3, "the error of the hidden states' gradient");
  bench::require_at_most(of_classifier, 5e-3, "the error of the classifier's gradient");
  state.counters["hidden_error"] = of_hidden;
  state.counters["classifier_error"] = of_classifier;
}

/// `gibibytes`: the most memory of the workspace; 0: no budget.
template <class D>
void measure(benchmark::State& state, linear_loss_shape const& shape, int gibibytes) {
  constexpr double products_without = detail::ratio_of<D> == mean_log_ratio::none ? 8 : 6;
  constexpr std::int64_t beside = std::int64_t{256} << 20;  // what no budget counts: sums of gradients
  constexpr int rounds = 6;                                 // of calls of up to 160 ms
  double const products = gibibytes > 0 ? 4 : products_without;
  distillation_data& data = data_of(shape);
  loss_problem& student = data.student;
  cuda const& exec = student.exec();
  std::int64_t const most = std::int64_t{gibibytes} << 30;
  distillation_options options;
  options.workspace_budget = gibibytes > 0 ? most - beside : 0;
  count_errors<D>(state, data, options);
  distillation_run<D> run{data, shape.tokens, options};
  auto const exact_plan = exact_cross_entropy::plan_backward(exec, shape, {});
  buffer<std::byte> exact_memory(exec, exact_plan.bytes());
  workspace const exact_space(exact_plan, exact_memory);
  buffer<float> exact_value(exec, 1);
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        student.memory().stream(), [&] { run(); },
        [&] {
          bench::run_forward<exact_cross_entropy>(exec, student.inputs(), {}, {.loss = exact_value.view()},
                                                  exact_space);
          bench::run_backward<exact_cross_entropy>(exec, student.inputs(), {}, run.out, exact_space);
        },
        rounds);
    state.SetIterationTime(seconds.ours);
  }
  constexpr double mebibyte = 1 << 20;
  bench::require_at_most(gibibytes > 0 ? static_cast<double>(run.plan.bytes()) : 0.0, static_cast<double>(most),
                         "the memory of the plan");
  state.counters["ms"] = 1e3 * seconds.ours;
  state.counters["exact_ms"] = 1e3 * seconds.peer;
  state.counters["over_exact"] = products / 4 * seconds.peer / seconds.ours;
  state.counters["extra_MiB"] = static_cast<double>(run.plan.bytes()) / mebibyte;
  float found = 0;
  bench::check(cudaMemcpy(&found, run.value.data(), sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  state.counters["loss"] = found;
  bench::report_cuda(state, seconds.ours, {.operations = products * student.operations()});
}

template <class D>
void add(std::string const& name, linear_loss_shape const& shape, int gibibytes = 0) {
  std::string const size =
      std::to_string(shape.tokens) + "x" + std::to_string(shape.vocabulary) + "x" + std::to_string(shape.channels);
  std::string const with = gibibytes > 0 ? "_" + std::to_string(gibibytes) + "GiB" : "";
  bench::add_cuda("linear_distillation/" + name + "/forward_backward" + with + "/bf16/spread/" + size,
                  [=](benchmark::State& state) { measure<D>(state, shape, gibibytes); });
}

bench::registration const registered([] {
  for (linear_loss_shape const& shape : {linear_loss_shape{8192, 256000, 2304}, {8192, 128256, 4096}}) {
    add<forward_kl>("forward_kl", shape);
    add<reverse_kl>("reverse_kl", shape);
    add<jensen_shannon>("jensen_shannon", shape);
    for (int const gibibytes : {1, 4, 6}) {
      add<forward_kl>("forward_kl", shape, gibibytes);
      add<jensen_shannon>("jensen_shannon", shape, gibibytes);
    }
  }
});

}  // namespace
