// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The exact loss on one core of the CPU. GFLOPs counts the products that the mathematics asks for: two operations for
/// each logit and channel of the forward pass, and six more of the backward pass, which makes logits again.
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/core/cpu_features.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>

#include "support/cpu.hpp"

namespace {

using namespace tessera;

std::vector<bfloat16> gauss_matrix(std::uint64_t seed, std::int64_t count, double sigma) {
  std::vector<bfloat16> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = testing::sample<bfloat16>(testing::gauss{.sigma = static_cast<float>(sigma)}, seed, i);
  }
  return values;
}

struct problem {
  static constexpr std::int64_t tokens = 256;
  static constexpr std::int64_t vocabulary = 8192;
  static constexpr std::int64_t channels = 512;
  using method = exact_cross_entropy;

  cpu exec{.threads = 1};
  linear_loss_options options;
  std::vector<bfloat16> hidden = gauss_matrix(1, tokens* channels, 1.0);
  std::vector<bfloat16> classifier = gauss_matrix(2, vocabulary* channels, 0.02);
  std::vector<std::int64_t> labels;
  std::vector<float> value = std::vector<float>(1);
  std::vector<bfloat16> hidden_gradient = std::vector<bfloat16>(hidden.size());
  std::vector<bfloat16> classifier_gradient = std::vector<bfloat16>(classifier.size());
  workspace_plan plan = method::plan_backward(exec, {tokens, vocabulary, channels}, options);
  buffer<std::byte> memory{plan.bytes()};

  problem() {
    for (std::int64_t i = 0; i < tokens; ++i) {
      labels.push_back(i * 31 % vocabulary);
    }
  }
  [[nodiscard]] method::inputs<std::int64_t> inputs() const {
    return {matrix_view<bfloat16 const>(hidden.data(), {tokens, channels}),
            matrix_view<bfloat16 const>(classifier.data(), {vocabulary, channels}), labels};
  }
  void forward() {
    method::forward(exec, inputs(), options, {.loss = value}, workspace(plan, memory));
    exec.wait();
  }
  void backward() {
    linear_loss_gradients<bfloat16> const out{
        matrix_view<bfloat16>(hidden_gradient.data(), {tokens, channels}),
        matrix_view<bfloat16>(classifier_gradient.data(), {vocabulary, channels})};
    method::backward(exec, inputs(), options, {}, out, workspace(plan, memory));
    exec.wait();
  }
  /// Logits of N(0, 0.02^2 channels), so that the loss is near log(vocabulary) and half of their variance.
  void require_result() const {
    double const expected = std::log(double{vocabulary}) + 0.5 * 0.02 * 0.02 * channels;
    if (!(std::abs(value[0] - expected) < 0.2)) {
      throw std::runtime_error("the loss is " + std::to_string(value[0]) + " but about " + std::to_string(expected) +
                               " is right");
    }
  }
};

void measure(benchmark::State& state, bool both) {
  problem p;
  double const seconds = bench::time_cpu(state, [&] {
    p.forward();
    if (both) {
      p.backward();
    }
  });
  p.require_result();
  double const products = 2.0 * problem::tokens * problem::vocabulary * problem::channels;
  bench::report_cpu(state, seconds, {.operations = (both ? 4 : 1) * products});
}

bool const added = [] {
  std::string const level = simd_level_name(best_simd_level());
  bench::add("exact_cross_entropy/cpu/forward/" + level + "/256x8192x512/1thread",
             [](benchmark::State& state) { measure(state, false); });
  bench::add("exact_cross_entropy/cpu/both/" + level + "/256x8192x512/1thread",
             [](benchmark::State& state) { measure(state, true); });
  return true;
}();

}  // namespace
