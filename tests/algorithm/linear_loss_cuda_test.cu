// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/linear_loss_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr double narrow = 1e-5;
constexpr double rounded = 4e-3;  // gradients of bf16
using loss_of_bf16 = exact_cross_entropy_of<bfloat16>;

}  // namespace

TEST_CASE("the loss and its gradients on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_on_device<loss_of_bf16, bfloat16>(make_loss_problem<bfloat16>(0, 40, 72), narrow, rounded);
  for (std::int64_t const tokens : {1, 127, 128, 129, 255, 256, 257, 600}) {
    check_on_device<loss_of_bf16, bfloat16>(make_loss_problem<bfloat16>(tokens, 300, 72), narrow, rounded);
  }
  for (std::int64_t const vocabulary : {2, 64, 255, 256, 257, 513, 5000}) {
    check_on_device<loss_of_bf16, bfloat16>(make_loss_problem<bfloat16>(130, vocabulary, 64), narrow, rounded);
  }
  for (std::int64_t const channels : {8, 63, 64, 65, 200, 321}) {  // those that are no multiple of 8: portably
    check_on_device<loss_of_bf16, bfloat16>(make_loss_problem<bfloat16>(130, 300, channels), narrow, rounded);
  }
}

TEST_CASE("every option of the loss works on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto problem = make_loss_problem<bfloat16>(300, 777, 128, true);
    problem.options.reduction = reduction;
    problem.options.z_factor = 1e-2F;
    problem.options.temperature = 0.7F;
    problem.options.shift = 1;
    problem.options.sequence = 50;
    check_on_device<loss_of_bf16, float>(problem, narrow, 3e-3);
    problem.options.softcap = 5.0F;
    check_on_device<loss_of_bf16, float>(problem, narrow, 3e-3);
  }
}

TEST_CASE("gradients on a GPU add up over parts of the vocabulary", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(700, 3000, 136);
  problem.options.reduction = loss_reduction::sum;
  for (std::int64_t const mebibytes : {2, 3, 5}) {
    problem.options.workspace_budget = mebibytes << 20;
    check_on_device<loss_of_bf16, bfloat16>(problem, narrow, rounded);
    check_on_device<loss_of_bf16, float>(problem, narrow, 3e-3);
  }
  auto halves = make_loss_problem<float16>(300, 2000, 72);
  halves.options.workspace_budget = std::int64_t{1} << 20;
  check_on_device<exact_cross_entropy_of<float16>, float16>(halves, narrow, 1e-3);
}

TEST_CASE("hidden states of tokens without a label may be anything on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(300, 700, 64);
  auto clean = problem;
  for (std::size_t token = 0; token < 300; ++token) {
    if (problem.labels[token] == -100) {
      for (std::size_t channel = 0; channel < 64; ++channel) {
        problem.hidden[token * 64 + channel] = store<bfloat16>(token % 2 == 0 ? NAN : INFINITY);
        clean.hidden[token * 64 + channel] = bfloat16{};
      }
    }
  }
  tessera::cuda const exec;
  auto const found = run_on_device<loss_of_bf16, bfloat16>(exec, problem);
  auto const expected = reference_gradient(clean);
  CHECK(relative_distance(found.hidden, expected.hidden) <= rounded);
  CHECK(relative_distance(found.classifier, expected.classifier) <= rounded);
  CHECK(relative_distance(found.bias, expected.bias) <= rounded);
}

TEST_CASE("a worker of the loss's program goes from row to row of tiles", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  // More rows of tiles than there are clusters.
  auto problem = make_loss_problem<bfloat16>(20000, 600, 8);
  tessera::cuda const exec;
  CHECK(wrong_losses(problem, run_on_device<loss_of_bf16, bfloat16>(exec, problem), narrow) == 0);
}

TEST_CASE("the loss of fp16, tf32 and fp32, and other reducers, work on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_on_device<exact_cross_entropy_of<float16>, float16>(make_loss_problem<float16>(200, 300, 64), narrow, 1e-3);
  check_on_device<exact_cross_entropy_of<float>, float>(make_loss_problem<float>(200, 300, 64, true), narrow, narrow);
  check_on_device<exact_cross_entropy_of<tf32>, float>(make_loss_problem<float>(200, 300, 64), 4e-3, 1e-2);
  auto problem = make_loss_problem<bfloat16, std::int32_t>(200, 300, 64);
  problem.options.smoothing = 0.1F;
  check_on_device<exact_cross_entropy_of<bfloat16, loss_statistics>, bfloat16>(problem, narrow, rounded);
}

TEST_CASE("a bad label is reported on a GPU and poisons its token and the total", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(200, 300, 64);
  tessera::cuda const exec;
  for (std::int64_t const bad : {std::int64_t{-1}, std::int64_t{300}, std::int64_t{1} << 40}) {
    problem.labels[7] = bad;
    CHECK_THROWS_AS((run_on_device<loss_of_bf16, bfloat16>(exec, problem)), value_error);
  }
}

TEST_CASE("a loss on a GPU repeats bit for bit, also from a graph", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const problem = make_loss_problem<bfloat16>(700, 3000, 128, true);
  cudaStream_t stream{};
  cuda_ok(cudaStreamCreate(&stream));
  {
    tessera::cuda const exec{.stream = stream};
    auto const first = run_on_device<cut_cross_entropy, bfloat16>(exec, problem);
    for (int i = 0; i < 5; ++i) {
      auto const again = run_on_device<cut_cross_entropy, bfloat16>(exec, problem);
      CHECK(again.log_sum_exp == first.log_sum_exp);
      CHECK(again.loss == first.loss);
      CHECK(std::memcmp(again.hidden.data(), first.hidden.data(), 2 * first.hidden.size()) == 0);
      CHECK(std::memcmp(again.classifier.data(), first.classifier.data(), 2 * first.classifier.size()) == 0);
    }
    device_problem<bfloat16, std::int64_t> const in(exec, problem);
    buffer<float> loss(exec, 1);
    auto const plan = cut_cross_entropy::plan(exec, {700, 3000, 128});
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    cudaGraph_t graph{};
    cudaGraphExec_t executable{};
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cut_cross_entropy::forward(exec, in.inputs(), problem.options, {.loss = loss.view()}, space);
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&executable, graph, 0));
    cuda_ok(cudaGraphLaunch(executable, stream));
    auto const from_graph = to_host(exec, loss);
    exec.wait();
    CHECK(from_graph == first.loss);
    cuda_ok(cudaGraphExecDestroy(executable));
    cuda_ok(cudaGraphDestroy(graph));
  }
  cuda_ok(cudaStreamDestroy(stream));
}
