// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Trains a classifier on real hidden states with a loss that never has its logits in memory.
///
/// Weights are trained as one does in mixed precision: bf16 for the products, fp32 for what steps are added to.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "../support/failure.hpp"
#include "../support/mapped_file.hpp"
#include "../support/run_example.hpp"
#include "../support/safetensors.hpp"
#include "../support/tensor_elements.hpp"
#include "../support/text_table.hpp"

namespace tessera_examples {
namespace {

using tessera::bfloat16;
using tessera::matrix_view;
using loss = tessera::cut_cross_entropy;

constexpr std::int64_t channels = 576;
constexpr int steps = 8;
constexpr float rate = 0.05F;

struct problem {
  std::vector<bfloat16> hidden;      ///< tokens x channels
  std::vector<bfloat16> classifier;  ///< vocabulary x channels
  std::vector<std::int32_t> labels;  ///< the next token of each, as a row of the classifier
};

problem read_problem(std::string const& path) {
  mapped_file const file(path);
  safetensors_reader const model(file.bytes(), path);
  return {elements_of<bfloat16>(model, path, "hidden", "BF16"),
          elements_of<bfloat16>(model, path, "classifier_rows", "BF16"),
          elements_of<std::int32_t>(model, path, "next_token_rows", "I32")};
}

/// The mean loss with all logits in memory, in double.
double dense_loss(problem const& p, tessera::linear_loss_shape const& shape) {
  double sum = 0;
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    std::vector<double> logits;
    double exponentials = 0;
    for (std::int64_t entry = 0; entry < shape.vocabulary; ++entry) {
      double logit = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        logit += static_cast<double>(tessera::load(p.hidden[static_cast<std::size_t>(token * channels + c)])) *
                 static_cast<double>(tessera::load(p.classifier[static_cast<std::size_t>(entry * channels + c)]));
      }
      logits.push_back(logit);
      exponentials += std::exp(logit);
    }
    sum += std::log(exponentials) - logits[static_cast<std::size_t>(p.labels[static_cast<std::size_t>(token)])];
  }
  return sum / static_cast<double>(shape.tokens);
}

void train() {
  problem p = read_problem(std::string(EXAMPLE_DATA) + "/smollm2_classifier.safetensors");
  tessera::linear_loss_shape const shape{std::ssize(p.labels), std::ssize(p.classifier) / channels, channels};
  tessera::cpu const exec;
  tessera::linear_loss_options const options;
  auto const plan = loss::plan_backward(exec, shape, options);
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
  double const expected = dense_loss(p, shape);
  float before = HUGE_VALF;
  for (int step = 0; step < steps; ++step) {
    loss::inputs<std::int32_t> const in{matrix_view<bfloat16 const>(p.hidden.data(), {shape.tokens, channels}),
                                        matrix_view<bfloat16 const>(p.classifier.data(), {shape.vocabulary, channels}),
                                        p.labels};
    loss::forward(exec, in, options, {.loss = {&value, 1}}, space);
    loss::backward(exec, in, options, {},
                   tessera::linear_loss_gradients<float>{
                       .classifier = matrix_view<float>(gradient.data(), {shape.vocabulary, channels})},
                   space);
    exec.wait();
    std::printf("step %d: loss %.4f\n", step, static_cast<double>(value));
    require(exit_code::unsound, step > 0 || std::abs(static_cast<double>(value) - expected) < 1e-4 * expected,
            "the loss is ", value, " but with all logits in memory ", expected);
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
