// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures losses whose classifier is a source: fp32 rows beside bf16 hidden states, and fp8 codes with a scale for
/// each row.
///
/// `ms` is the median of calls of both passes, in turns with those of the loss whose classifier is bf16 in memory,
/// `plain_ms`; `forward_ms` and `plain_forward_ms` are those of the forward pass alone. `over_plain` and
/// `forward_over_plain` are the rates over those of the plain loss. Gradients are bf16, in the default workspace, of
/// which `extra_MiB` is the size.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/tile/source/converted.hpp>

#include "support/cuda.cuh"
#include "support/loss_problem.cuh"
#include "support/loss_runs.cuh"

namespace {

using namespace tessera;
using bench::loss_data;
using bench::loss_problem;
using quantizer = scaled_float_quantizer<float8_e4m3, whole_row>;
using master = converted<float, bfloat16>;
using coded = dequantized<quantizer, bfloat16>;

/// A problem, and its classifier in other types.
struct stored_data {
  loss_problem problem;
  buffer<float> rows{problem.exec(), problem.classifier().size()};
  buffer<float8_e4m3> codes{problem.exec(), problem.classifier().size()};
  buffer<scaled_float_params> scales{problem.exec(), problem.shape().vocabulary};

  stored_data(loss_data data, linear_loss_shape const& shape) : problem(data, shape) {
    cuda const& exec = problem.exec();
    materialize(exec, converted<bfloat16, float>(problem.classifier()), matrix_of(rows.data()));
    quantized_matrix<quantizer>::quantize(exec, {}, problem.classifier(), matrix_of(codes.data()),
                                          matrix_view<scaled_float_params>(scales.data(), {shape.vocabulary, 1}));
    exec.wait();
  }

  template <class Source>
  Source source() const {
    if constexpr (std::is_same_v<Source, master>) {
      return master(matrix_of(rows.data()));
    } else {
      return {{}, matrix_of(codes.data()), {scales.data(), {problem.shape().vocabulary, 1}}};
    }
  }

 private:
  template <class T>
  matrix_view<T> matrix_of(T* data) const {
    return {data, {problem.shape().vocabulary, problem.shape().channels}};
  }
};

/// The problem of these extents. One is kept, because repetitions with the same one follow each other.
stored_data& data_of(loss_data data, linear_loss_shape const& shape) {
  static std::unique_ptr<stored_data> last;
  if (last == nullptr || last->problem.shape().vocabulary != shape.vocabulary || last->problem.data() != data) {
    last.reset();
    last = std::make_unique<stored_data>(data, shape);
  }
  return *last;
}

float at(buffer<float> const& value) {
  float found = 0;
  bench::check(cudaMemcpy(&found, value.data(), sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return found;
}

template <class Plain, class Source>
void measure(benchmark::State& state, loss_data which, linear_loss_shape const& shape) {
  using loss = with_classifier<Plain, Source>;
  stored_data& data = data_of(which, shape);
  loss_problem& problem = data.problem;
  cuda const& exec = problem.exec();
  buffer<bfloat16> hidden(exec, problem.hidden().size());
  buffer<bfloat16> classifier(exec, problem.classifier().size());
  linear_loss_gradients<bfloat16> const out{{hidden.data(), {shape.tokens, shape.channels}},
                                            {classifier.data(), {shape.vocabulary, shape.channels}}};
  typename loss::template inputs<std::int64_t> const in{problem.hidden(), data.source<Source>(), problem.labels()};
  auto const plan = loss::plan_backward(exec, shape, {});
  auto const plain_plan = Plain::plan_backward(exec, shape, {});
  buffer<std::byte> memory(exec, plan.bytes());
  buffer<std::byte> plain_memory(exec, plain_plan.bytes());
  workspace const space(plan, memory);
  workspace const plain_space(plain_plan, plain_memory);
  buffer<float> value(exec, 1);
  buffer<float> plain_value(exec, 1);
  auto const forward = [&] { loss::forward(exec, in, {}, {.loss = value.view()}, space); };
  auto const plain_forward = [&] {
    bench::run_forward<Plain>(exec, problem.inputs(), {}, {.loss = plain_value.view()}, plain_space);
  };
  bench::race seconds{};
  bench::race of_forward{};
  for (auto _ : state) {
    of_forward = bench::alternate(problem.memory().stream(), forward, plain_forward);
    seconds = bench::alternate(
        problem.memory().stream(),
        [&] {
          forward();
          loss::backward(exec, in, {}, {}, out, space);
        },
        [&] {
          plain_forward();
          bench::run_backward<Plain>(exec, problem.inputs(), {}, out, plain_space);
        });
    state.SetIterationTime(seconds.ours);
  }
  exec.wait();
  constexpr double mebibyte = 1 << 20;
  state.counters["ms"] = 1e3 * seconds.ours;
  state.counters["plain_ms"] = 1e3 * seconds.peer;
  state.counters["over_plain"] = seconds.peer / seconds.ours;
  state.counters["forward_ms"] = 1e3 * of_forward.ours;
  state.counters["plain_forward_ms"] = 1e3 * of_forward.peer;
  state.counters["forward_over_plain"] = of_forward.peer / of_forward.ours;
  state.counters["extra_MiB"] = static_cast<double>(plan.bytes()) / mebibyte;
  state.counters["loss"] = at(value);
  state.counters["plain_loss"] = at(plain_value);
  bench::report_cuda(state, seconds.ours, {.operations = 4 * problem.operations()});
}

template <class Plain, class Source>
void add(std::string const& name, loss_data data, linear_loss_shape const& shape) {
  std::string const size =
      std::to_string(shape.tokens) + "x" + std::to_string(shape.vocabulary) + "x" + std::to_string(shape.channels);
  bench::add_cuda("with_classifier/" + name + "/forward_backward/bf16/" + bench::name_of(data) + "/" + size,
                  [=](benchmark::State& state) { measure<Plain, Source>(state, data, shape); });
}

bench::registration const registered([] {
  for (linear_loss_shape const& shape : {linear_loss_shape{8192, 256000, 2304}, {8192, 128256, 4096}}) {
    add<exact_cross_entropy, master>("exact_fp32_rows", loss_data::zipf, shape);
    add<exact_cross_entropy, coded>("exact_fp8_rows", loss_data::zipf, shape);
    add<cut_cross_entropy, master>("filtered_fp32_rows", loss_data::zipf, shape);
    add<cut_cross_entropy, coded>("filtered_fp8_rows", loss_data::zipf, shape);
  }
});

}  // namespace
