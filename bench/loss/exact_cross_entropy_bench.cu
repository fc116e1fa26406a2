// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures both passes of the exact cross-entropy against the products that they cannot do without.
///
/// With memory for the softmaxes (`4GiB`) these are three: the logits, and their gradient with the classifier and with
/// hidden states. In `160MiB`, in `10MiB`, with gradients in fp32, and in `10MiB_gradients_in_bf16` the logits are made
/// twice, and so there are four. `ms` is the median of both passes in turns with those products by cuBLAS,
/// `products_ms`, each by the fastest of the algorithms that it proposes, of the same hidden states and classifier and
/// of the same gradient by the logits in bf16. `over_products` is the first over the second. `forward_ms` and
/// `backward_ms` are medians of the passes in turns with each other. `extra_MiB` is what the plan says.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>

#include "support/cublas.cuh"
#include "support/cuda.cuh"
#include "support/loss_problem.cuh"
#include "support/loss_runs.cuh"

namespace {

using namespace tessera;
using bench::loss_data;
using bench::loss_problem;

/// Turns logits into the gradient of their mean loss, with a block for each token.
__global__ void differentiate(matrix_view<bfloat16> logits, float const* log_sum_exps, std::int64_t const* labels) {
  std::int64_t const token = blockIdx.x;
  float const weight = 1.0F / static_cast<float>(logits.extent(0));
  for (std::int64_t entry = threadIdx.x; entry < logits.extent(1); entry += blockDim.x) {
    float const softmax = expf(load(logits(token, entry)) - log_sum_exps[token]);
    logits(token, entry) = store<bfloat16>((entry == labels[token] ? softmax - 1.0F : softmax) * weight);
  }
}

/// The products, in a memory of their own: logits and their gradient.
class products {
 public:
  explicit products(loss_problem& problem)
      : problem_(problem),
        logits_(problem.memory(), count()),
        gradient_(problem.memory(), count()),
        of_logits_(problem.memory(), shape().tokens, shape().vocabulary, shape().channels),
        of_hidden_(problem.memory(), shape().tokens, shape().channels, shape().vocabulary, {false, true}),
        of_classifier_(problem.memory(), shape().vocabulary, shape().channels, shape().tokens, {true, true}) {}

  /// Makes the gradient by the logits, and chooses cuBLAS's algorithms.
  void prepare(float const* log_sum_exps, bfloat16* hidden, bfloat16* classifier) {
    cudaStream_t const stream = problem_.memory().stream();
    of_logits_.choose(problem_.hidden().data, problem_.classifier().data, gradient_.data(), stream);
    of_logits_.run(problem_.hidden().data, problem_.classifier().data, gradient_.data(), stream);
    differentiate<<<static_cast<unsigned>(shape().tokens), 512, 0, stream>>>(
        {gradient_.data(), {shape().tokens, shape().vocabulary}}, log_sum_exps, problem_.labels().data);
    bench::check(cudaGetLastError(), "differentiate");
    of_hidden_.choose(gradient_.data(), problem_.classifier().data, hidden, stream);
    of_classifier_.choose(gradient_.data(), problem_.hidden().data, classifier, stream);
  }
  /// Enqueues the products: the logits so many times, and both gradients.
  void run(int times_logits, bfloat16* hidden, bfloat16* classifier) const {
    cudaStream_t const stream = problem_.memory().stream();
    for (int i = 0; i < times_logits; ++i) {
      of_logits_.run(problem_.hidden().data, problem_.classifier().data, logits_.data(), stream);
    }
    of_hidden_.run(gradient_.data(), problem_.classifier().data, hidden, stream);
    of_classifier_.run(gradient_.data(), problem_.hidden().data, classifier, stream);
  }

 private:
  linear_loss_shape const& shape() const { return problem_.shape(); }
  std::size_t count() const { return static_cast<std::size_t>(shape().tokens * shape().vocabulary); }

  loss_problem& problem_;
  bench::device_array<bfloat16> logits_;
  bench::device_array<bfloat16> gradient_;
  bench::cublas_linear<bfloat16, bfloat16> of_logits_;
  bench::cublas_linear<bfloat16, bfloat16> of_hidden_;
  bench::cublas_linear<bfloat16, bfloat16> of_classifier_;
};

/// The problem of these extents. One is kept, because repetitions with the same one follow each other.
loss_problem& problem_of(loss_data data, linear_loss_shape const& shape) {
  static std::unique_ptr<loss_problem> last;
  if (last == nullptr || last->data() != data || last->shape().vocabulary != shape.vocabulary) {
    last.reset();
    last = std::make_unique<loss_problem>(data, shape);
  }
  return *last;
}

/// Gradient: the type of both gradients. cuBLAS's are always bf16.
template <class Gradient>
void measure(benchmark::State& state, loss_data data, linear_loss_shape const& shape, std::int64_t budget) {
  using loss = exact_cross_entropy;
  loss_problem& problem = problem_of(data, shape);
  cuda const& exec = problem.exec();
  linear_loss_options const options{.workspace_budget = budget};
  bench::device_array<bfloat16> const hidden(problem.memory(), static_cast<std::size_t>(problem.hidden().size()));
  bench::device_array<bfloat16> const classifier(problem.memory(),
                                                 static_cast<std::size_t>(problem.classifier().size()));
  bench::device_array<Gradient> const own_hidden(problem.memory(), static_cast<std::size_t>(problem.hidden().size()));
  bench::device_array<Gradient> const own_classifier(problem.memory(),
                                                     static_cast<std::size_t>(problem.classifier().size()));
  linear_loss_gradients<Gradient> const out{{own_hidden.data(), {shape.tokens, shape.channels}},
                                            {own_classifier.data(), {shape.vocabulary, shape.channels}}};
  auto const plan = loss::plan_backward<Gradient>(exec, shape, options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  buffer<float> value(exec, 1);
  buffer<float> log_sum_exps(exec, shape.tokens);
  auto const forward = [&] {
    bench::run_forward<loss>(exec, problem.inputs(), options,
                             {.loss = value.view(), .log_sum_exp = log_sum_exps.view()}, space);
  };
  auto const backward = [&] { bench::run_backward<loss>(exec, problem.inputs(), options, out, space); };
  forward();
  products peer(problem);
  peer.prepare(log_sum_exps.data(), hidden.data(), classifier.data());
  int const times_logits = plan.bytes() > problem.operations() / static_cast<double>(shape.channels) ? 1 : 2;
  bench::race both{};
  bench::race passes{};
  for (auto _ : state) {
    both = bench::alternate(
        problem.memory().stream(),
        [&] {
          forward();
          backward();
        },
        [&] { peer.run(times_logits, hidden.data(), classifier.data()); });
    passes = bench::alternate(problem.memory().stream(), forward, backward);
    state.SetIterationTime(both.ours);
  }
  exec.wait();
  constexpr double mebibyte = 1 << 20;
  state.counters["ms"] = 1e3 * both.ours;
  state.counters["products_ms"] = 1e3 * both.peer;
  state.counters["over_products"] = both.ours / both.peer;
  state.counters["forward_ms"] = 1e3 * passes.ours;
  state.counters["backward_ms"] = 1e3 * passes.peer;
  state.counters["extra_MiB"] = static_cast<double>(plan.bytes()) / mebibyte;
  bench::report_cuda(state, both.ours, {.operations = (times_logits + 2) * problem.operations()});
}

void add_shape(linear_loss_shape const& shape) {
  std::string const size =
      std::to_string(shape.tokens) + "x" + std::to_string(shape.vocabulary) + "x" + std::to_string(shape.channels);
  for (loss_data const data : {loss_data::spread, loss_data::zipf}) {
    std::string const end = "/bf16/" + bench::name_of(data) + "/" + size;
    bench::add_cuda("exact_cross_entropy/forward_backward/160MiB" + end,
                    [=](benchmark::State& state) { measure<bfloat16>(state, data, shape, 0); });
    bench::add_cuda("exact_cross_entropy/forward_backward/10MiB" + end,
                    [=](benchmark::State& state) { measure<float>(state, data, shape, std::int64_t{10} << 20); });
    bench::add_cuda("exact_cross_entropy/forward_backward/10MiB_gradients_in_bf16" + end,
                    [=](benchmark::State& state) { measure<bfloat16>(state, data, shape, std::int64_t{10} << 20); });
    bench::add_cuda("exact_cross_entropy/forward_backward/4GiB" + end,
                    [=](benchmark::State& state) { measure<bfloat16>(state, data, shape, std::int64_t{4} << 30); });
  }
}

bench::registration const registered([] {
  add_shape({8192, 256000, 2304});  // Gemma 2 2B
  add_shape({8192, 128256, 4096});  // Llama 3 8B
});

}  // namespace
