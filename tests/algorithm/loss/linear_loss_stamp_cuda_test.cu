// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A backward pass on a GPU refuses to follow a forward pass that is not its own.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/loss_stamp_words.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr std::int64_t tokens = 300;
constexpr std::int64_t vocabulary = 700;
constexpr std::int64_t workspace_bytes = std::int64_t{16} << 20;

using problem_type = loss_problem<bfloat16, std::int64_t>;

problem_type make_problem(std::int64_t channels) {
  auto problem = make_loss_problem<bfloat16>(tokens, vocabulary, channels);
  problem.options.workspace_budget = workspace_bytes;  // softmaxes are kept, where they can be
  return problem;
}

/// One workspace and one set of gradients for all passes.
template <class Loss>
struct device_passes {
  tessera::cuda exec;
  buffer<std::byte> memory{exec, workspace_bytes};
  buffer<float> loss{exec, tokens};
  buffer<float> hidden{exec, tokens * 72};
  buffer<float> classifier{exec, vocabulary * 72};
  bool accumulates = false;  ///< whether backward passes add to the gradients of those before

  static linear_loss_shape shape_of(problem_type const& p) { return {p.tokens, p.vocabulary, p.channels}; }
  workspace space_of(problem_type const& p) {
    return workspace(Loss::template plan_backward<float>(exec, shape_of(p), p.options), memory);
  }

  void fill(int value) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(workspace_bytes), static_cast<std::byte>(value));
    for (std::size_t i = 0; value < 0 && i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(testing::hash(static_cast<std::uint64_t>(-value), i));
    }
    exec.copy(bytes, memory);
    exec.wait();
  }
  void enqueue_forward(problem_type const& p, device_problem<bfloat16, std::int64_t> const& in) {
    std::int64_t const losses = p.options.reduction == loss_reduction::none ? p.tokens : 1;
    Loss::forward(exec, in.inputs(), p.options, {.loss = {loss.data(), losses}}, space_of(p));
  }
  void enqueue_backward(problem_type const& p, device_problem<bfloat16, std::int64_t> const& in) {
    linear_loss_gradients<float> const out{.hidden = {hidden.data(), {p.tokens, p.channels}},
                                           .classifier = {classifier.data(), {p.vocabulary, p.channels}},
                                           .accumulate_hidden = accumulates,
                                           .accumulate_classifier = accumulates};
    Loss::backward(exec, in.inputs(), p.options, {}, out, space_of(p));
  }
  void forward(problem_type const& p) {
    device_problem<bfloat16, std::int64_t> const in(exec, p);
    enqueue_forward(p, in);
    exec.wait();
  }
  /// What wait() says.
  std::string backward(problem_type const& p) {
    device_problem<bfloat16, std::int64_t> const in(exec, p);
    enqueue_backward(p, in);
    return waited();
  }
  std::string waited() const {
    try {
      exec.wait();
    } catch (value_error const& e) {
      return e.what();
    }
    return "nothing thrown";
  }
  /// How many gradients are not NaN.
  std::int64_t numbers(problem_type const& p) const {
    auto const of_hidden = to_host(exec, hidden);
    auto const of_classifier = to_host(exec, classifier);
    auto const is_number = [](float value) { return !std::isnan(value); };
    return std::count_if(of_hidden.begin(), of_hidden.begin() + p.tokens * p.channels, is_number) +
           std::count_if(of_classifier.begin(), of_classifier.begin() + p.vocabulary * p.channels, is_number);
  }
};

/// Changes the problem between the passes. What the second one would add makes all gradients NaN, too.
template <class Loss, class Change>
void check_refused(std::int64_t channels, loss_stamp::part part, Change const& change, bool accumulates = false) {
  auto problem = make_problem(channels);
  device_passes<Loss> passes;
  passes.forward(problem);
  REQUIRE(passes.backward(problem) == "nothing thrown");
  REQUIRE(passes.numbers(problem) == (tokens + vocabulary) * channels);
  passes.forward(problem);
  change(problem);
  passes.accumulates = accumulates;
  CAPTURE(channels, accumulates);
  CHECK_THAT(passes.backward(problem), contains(words_of(part)));
  CHECK(passes.numbers(problem) == 0);
}

template <class Loss>
void check_all_refused(std::int64_t channels) {
  check_refused<Loss>(channels, loss_stamp::reduction, [](auto& p) { p.options.reduction = loss_reduction::sum; });
  check_refused<Loss>(channels, loss_stamp::reduction, [](auto& p) { p.options.reduction = loss_reduction::none; });
  check_refused<Loss>(channels, loss_stamp::options, [](auto& p) { p.options.softcap = 5.0F; });
  check_refused<Loss>(channels, loss_stamp::options, [](auto& p) { p.options.classifier_threshold = 0.25F; });
  check_refused<Loss>(channels, loss_stamp::inputs, [](auto& p) { std::reverse(p.hidden.begin(), p.hidden.end()); });
  check_refused<Loss>(channels, loss_stamp::inputs,
                      [](auto& p) { std::reverse(p.classifier.begin(), p.classifier.end()); });
  check_refused<Loss>(channels, loss_stamp::inputs, [](auto& p) { std::reverse(p.labels.begin(), p.labels.end()); });
  for (bool const accumulates : {false, true}) {
    auto const take_away_entries = [](auto& p) {
      p.vocabulary -= 100;
      p.classifier.resize(static_cast<std::size_t>(p.vocabulary * p.channels));
      p.labels.assign(tokens, 5);
    };
    check_refused<Loss>(channels, loss_stamp::entries, take_away_entries, accumulates);
  }
  check_refused<Loss>(
      channels, loss_stamp::options, [](auto& p) { p.options.softcap = 5.0F; }, true);
  for (int const value : {-1, 0x00, 0x01, 0x7f, 0x80, 0xee, 0xff}) {
    CAPTURE(value);
    auto const problem = make_problem(channels);
    device_passes<Loss> passes;
    passes.fill(value);
    CHECK_THAT(passes.backward(problem), contains(words_of(loss_stamp::mark)));
    CHECK(passes.numbers(problem) == 0);
    passes.forward(problem);
    CHECK(passes.backward(problem) == "nothing thrown");
  }
}

}  // namespace

TEST_CASE("a backward pass on a GPU that has no forward pass of its own is refused", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all_refused<cut_cross_entropy>(72);  // in the order of marks
  check_all_refused<cut_cross_entropy>(63);  // portably
}

TEST_CASE("a backward pass on a GPU that would use softmaxes of another forward pass is refused", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all_refused<exact_cross_entropy>(72);
}

TEST_CASE("a backward pass without a forward pass is refused from a graph, too, each time", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cudaStream_t stream{};
  cuda_ok(cudaStreamCreate(&stream));
  {
    auto const problem = make_problem(72);
    device_passes<cut_cross_entropy> passes{.exec = {.stream = stream}};
    device_problem<bfloat16, std::int64_t> const in(passes.exec, problem);
    passes.forward(problem);  // all programs are on the device before the capture
    CHECK(passes.backward(problem) == "nothing thrown");
    passes.fill(0);
    cudaGraph_t graph{};
    cudaGraphExec_t executable{};
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    passes.enqueue_backward(problem, in);
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; ++i) {
      cuda_ok(cudaGraphLaunch(executable, stream));
      CHECK_THAT(passes.waited(), contains(words_of(loss_stamp::mark)));
    }
    passes.enqueue_forward(problem, in);
    for (int i = 0; i < 2; ++i) {
      cuda_ok(cudaGraphLaunch(executable, stream));
      CHECK(passes.waited() == "nothing thrown");
      CHECK(passes.numbers(problem) == (tokens + vocabulary) * 72);
    }
    cuda_ok(cudaGraphExecDestroy(executable));
    cuda_ok(cudaGraphDestroy(graph));
  }
  cuda_ok(cudaStreamDestroy(stream));
}

TEST_CASE("without channels or tokens both passes of a loss work on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const count : {0, 1, 300}) {
    for (std::int64_t const channels : {0, 64}) {
      if (count > 0 && channels > 0) {
        continue;
      }
      auto const problem = make_loss_problem<bfloat16>(count, 200, channels, true);
      device_problem<bfloat16, std::int64_t> const in(exec, problem);
      auto const plan = exact_cross_entropy::plan_backward<float>(exec, {count, 200, channels}, problem.options);
      buffer<std::byte> memory(exec, plan.bytes());
      workspace const space(plan, memory);
      buffer<float> loss(exec, 1);
      buffer<float> some(exec, 200 * 64);  // gradients that have no elements are somewhere, too
      buffer<float> bias(exec, 200);
      exec.copy(std::vector<float>(200 * 64, 7.0F), some);
      linear_loss_gradients<float> const out{
          {some.data(), {count, channels}}, {some.data(), {200, channels}}, bias.view()};
      exact_cross_entropy::forward(exec, in.inputs(), problem.options, {.loss = loss.view()}, space);
      exact_cross_entropy::backward(exec, in.inputs(), problem.options, {}, out, space);
      exec.wait();
      CAPTURE(count, channels);
      CHECK(std::fabs(static_cast<double>(to_host(exec, loss)[0]) - reference_loss(problem).total) < 1e-4);
      CHECK(relative_distance(to_host(exec, bias), reference_gradient(problem).bias) < 8e-3);
      CHECK(to_host(exec, some) == std::vector<float>(200 * 64, channels == 0 ? 7.0F : 0.0F));
    }
  }
}
