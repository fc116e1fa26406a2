// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Trains a classifier on real hidden states with a loss whose logits are never in memory.
///
/// Training uses mixed precision: bf16 weights for the products, and fp32 weights that steps are added to.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "../support/classifier_problem.hpp"
#include "../support/distance.hpp"
#include "../support/failure.hpp"
#include "../support/loss_reference.hpp"
#include "../support/run_example.hpp"
#include "../support/text_table.hpp"

namespace tessera_examples {
namespace {

using tessera::bfloat16;
using tessera::matrix_view;
using loss = tessera::cut_cross_entropy;

constexpr int steps = 8;
constexpr float rate = 0.05F;

/// The length of the difference from the expected values, relative to their length.
double relative_error(std::vector<float> const& found, std::vector<double> const& expected) {
  distance apart;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    apart.add(static_cast<double>(found.at(i)), expected[i]);
  }
  return apart.relative();
}

void train() {
  classifier_problem p = read_classifier(std::string(EXAMPLE_DATA) + "/smollm2_classifier.safetensors");
  loss_reference const expected(p);
  tessera::linear_loss_shape const shape{static_cast<std::int64_t>(p.tokens), static_cast<std::int64_t>(p.vocabulary),
                                         static_cast<std::int64_t>(p.channels)};
  tessera::cpu const exec;
  tessera::linear_loss_options const options;
  auto const plan = loss::plan_backward<float>(exec, shape, options);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  tessera::workspace const space(plan, memory);
  std::printf("%lld tokens x %lld entries: logits and their gradient in fp32 would take %s, the workspace takes %s\n",
              static_cast<long long>(shape.tokens), static_cast<long long>(shape.vocabulary),
              readable_bytes(8 * shape.tokens * shape.vocabulary).c_str(), readable_bytes(plan.bytes()).c_str());

  std::vector<float> weights;
  for (bfloat16 const weight : p.classifier) {
    weights.push_back(tessera::load(weight));
  }
  std::vector<float> gradient(p.classifier.size());
  float value = 0;
  float before = HUGE_VALF;
  for (int step = 0; step < steps; ++step) {
    loss::inputs<std::int32_t> const in{
        matrix_view<bfloat16 const>(p.hidden.data(), {shape.tokens, shape.channels}),
        matrix_view<bfloat16 const>(p.classifier.data(), {shape.vocabulary, shape.channels}), p.labels};
    loss::forward(exec, in, options, {.loss = {&value, 1}}, space);
    loss::backward(exec, in, options, {},
                   tessera::linear_loss_gradients<float>{
                       .classifier = matrix_view<float>(gradient.data(), {shape.vocabulary, shape.channels})},
                   space);
    exec.wait();
    std::printf("step %d: loss %.4f\n", step, static_cast<double>(value));
    if (step == 0) {
      double const error = relative_error(gradient, expected.classifier);
      require(exit_code::unsound, std::abs(static_cast<double>(value) - expected.loss) < 1e-4 * expected.loss,
              "the loss is ", value, " but with all logits in memory ", expected.loss);
      require(exit_code::unsound, error < 0.01, "the gradient has an error of ", error, " but may have ", 0.01);
    }
    require(exit_code::unsound, value < before, "the loss grew from ", before, " to ", value);
    before = value;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] -= rate * gradient[i];
      p.classifier[i] = tessera::store<bfloat16>(weights[i]);
    }
  }
}

}  // namespace
}  // namespace tessera_examples

int main() {
  return tessera_examples::run_example("cut_cross_entropy", tessera_examples::train);
}
