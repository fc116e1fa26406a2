// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures distillation: divergences of a student from a teacher with as large a classifier, and the student's
/// gradients.
///
/// `ms` is the median of calls of both passes, in turns with those of the student's exact cross-entropy, `exact_ms`.
/// `over_exact` is the rate of the products that distillation needs (6, or 8 with jensen_shannon) over the rate of the
/// loss's 4: 1 if a product took the same time in both. `extra_MiB` is what the plan says.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>

#include "support/cuda.cuh"
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
void measure(benchmark::State& state, linear_loss_shape const& shape) {
  using loss = linear_distillation<bfloat16, D>;
  constexpr double products = detail::ratio_of<D> == mean_log_ratio::none ? 8 : 6;
  distillation_data& data = data_of(shape);
  loss_problem& student = data.student;
  cuda const& exec = student.exec();
  buffer<bfloat16> hidden(exec, student.hidden().size());
  buffer<bfloat16> classifier(exec, student.classifier().size());
  linear_loss_gradients<bfloat16> const out{{hidden.data(), {shape.tokens, shape.channels}},
                                            {classifier.data(), {shape.vocabulary, shape.channels}}};
  typename loss::inputs const in{student.hidden(),
                                 student.classifier(),
                                 {data.teacher_hidden.data(), {shape.tokens, shape.channels}},
                                 {data.teacher_classifier.data(), {shape.vocabulary, shape.channels}}};
  auto const plan = loss::plan_backward(exec, {shape.tokens, shape.vocabulary, shape.channels, shape.channels}, {});
  auto const exact_plan = exact_cross_entropy::plan_backward(exec, shape, {});
  buffer<std::byte> memory(exec, plan.bytes());
  buffer<std::byte> exact_memory(exec, exact_plan.bytes());
  workspace const space(plan, memory);
  workspace const exact_space(exact_plan, exact_memory);
  buffer<float> value(exec, 1);
  buffer<float> exact_value(exec, 1);
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        student.memory().stream(),
        [&] {
          loss::forward(exec, in, {}, {.loss = value.view()}, space);
          loss::backward(exec, in, {}, {}, out, space);
        },
        [&] {
          bench::run_forward<exact_cross_entropy>(exec, student.inputs(), {}, {.loss = exact_value.view()},
                                                  exact_space);
          bench::run_backward<exact_cross_entropy>(exec, student.inputs(), {}, out, exact_space);
        });
    state.SetIterationTime(seconds.ours);
  }
  constexpr double mebibyte = 1 << 20;
  state.counters["ms"] = 1e3 * seconds.ours;
  state.counters["exact_ms"] = 1e3 * seconds.peer;
  state.counters["over_exact"] = products / 4 * seconds.peer / seconds.ours;
  state.counters["extra_MiB"] = static_cast<double>(plan.bytes()) / mebibyte;
  float found = 0;
  bench::check(cudaMemcpy(&found, value.data(), sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  state.counters["loss"] = found;
  bench::report_cuda(state, seconds.ours, {.operations = products * student.operations()});
}

template <class D>
void add(std::string const& name, linear_loss_shape const& shape) {
  std::string const size =
      std::to_string(shape.tokens) + "x" + std::to_string(shape.vocabulary) + "x" + std::to_string(shape.channels);
  bench::add_cuda("linear_distillation/" + name + "/forward_backward/bf16/spread/" + size,
                  [=](benchmark::State& state) { measure<D>(state, shape); });
}

bench::registration const registered([] {
  for (linear_loss_shape const& shape : {linear_loss_shape{8192, 256000, 2304}, {8192, 128256, 4096}}) {
    add<forward_kl>("forward_kl", shape);
    add<reverse_kl>("reverse_kl", shape);
    add<jensen_shannon>("jensen_shannon", shape);
  }
});

}  // namespace
