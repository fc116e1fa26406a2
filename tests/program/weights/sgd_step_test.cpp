// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/weights/sgd_step.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// How many weights are not w - rate * g rounded to fp32 and then to their type.
template <class Weight, class Gradient, class Executor>
int wrong_steps(Executor const& exec, std::size_t count, float rate) {
  std::vector<Weight> weights(count);
  std::vector<Gradient> gradient(count);
  for (std::size_t i = 0; i < count; ++i) {
    weights[i] = store<Weight>(testing::gauss{}.value(1, i));
    gradient[i] = store<Gradient>(testing::gauss{8.0F}.value(2, i));
  }
  std::vector<Weight> const before = weights;
  sgd_step<Weight, Gradient> const step{weights, gradient, rate};
  exec.run(step, step.groups());
  int wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    // In double the product is exact, and the sum has one rounding, far below that to fp32.
    double const exact =
        static_cast<double>(load(before[i])) - static_cast<double>(rate) * static_cast<double>(load(gradient[i]));
    wrong += to_bits(weights[i]) == to_bits(store<Weight>(static_cast<float>(exact))) ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("a step of gradient descent is rounded once to fp32 and once to the weights' type", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::size_t const count : {0, 1, 7, 31, 32, 33, 1023, 1024, 1025, 5000}) {
    CAPTURE(count);
    CHECK(wrong_steps<bfloat16, float>(exec, count, 0.01F) == 0);
    CHECK(wrong_steps<float, bfloat16>(exec, count, -0.3F) == 0);
    CHECK(wrong_steps<float16, float16>(exec, count, 1e-3F) == 0);
  }
}

TEST_CASE("a step of gradient descent keeps the rules for programs", "[host]") {
  CHECK(wrong_steps<bfloat16, float>(testing::adversary{.seed = 3}, 1025, 0.01F) == 0);
  CHECK(wrong_steps<float, float>(testing::adversary{.seed = 4}, 33, 0.5F) == 0);
}

TEST_CASE("a step of gradient descent reads and writes weights with strides", "[host]") {
  std::vector<float> weights{1.0F, -1.0F, 2.0F, -1.0F, 3.0F, -1.0F};
  std::vector<float> const gradient{30.0F, 20.0F, 10.0F};
  sgd_step<float, float> const step{{weights.data(), {3}, {2}}, {gradient.data() + 2, {3}, {-1}}, 0.1F};
  cpu{.threads = 1}.run(step, step.groups());
  CHECK(weights[0] == Approx(0.0F).margin(1e-6));
  CHECK(weights[2] == Approx(0.0F).margin(1e-6));
  CHECK(weights[4] == Approx(0.0F).margin(1e-6));
  CHECK(weights[1] == -1.0F);
  CHECK(weights[5] == -1.0F);
}
