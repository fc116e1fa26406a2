// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_runs.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr std::int64_t tokens = 96;
constexpr std::int64_t vocabulary = 80;
constexpr std::int64_t channels = 16;
constexpr int steps = 60;
constexpr double rate = 4.0;

/// Hidden states and a classifier that learn a text by heart, both by gradient descent. `gradient(problem)` gives the
/// loss of the rounded parameters, and adds minus rate * gradient to the parameters themselves, which are in double.
template <class T, class Step>
std::vector<double> train(Step const& step) {
  auto problem = make_loss_problem<T>(tokens, vocabulary, channels);
  std::vector<double> hidden;
  std::vector<double> classifier;
  for (T const value : problem.hidden) {
    hidden.push_back(as_double(value));
  }
  for (T const value : problem.classifier) {
    classifier.push_back(as_double(value));
  }
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    for (std::size_t k = 0; k < hidden.size(); ++k) {
      problem.hidden[k] = store<T>(static_cast<float>(hidden[k]));
    }
    for (std::size_t k = 0; k < classifier.size(); ++k) {
      problem.classifier[k] = store<T>(static_cast<float>(classifier[k]));
    }
    losses.push_back(step(problem, hidden, classifier));
  }
  return losses;
}

template <class Gradient>
void descend(std::vector<double>& parameters, std::vector<Gradient> const& gradient) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if constexpr (std::is_same_v<Gradient, double>) {
      parameters[i] -= rate * gradient[i];
    } else {
      parameters[i] -= rate * as_double(gradient[i]);
    }
  }
}

template <class Loss, class T>
std::vector<double> train_cut() {
  cpu const exec{.threads = 2};
  return train<T>([&](auto const& problem, std::vector<double>& hidden, std::vector<double>& classifier) {
    auto const found = run_gradients<Loss, T>(exec, problem);
    descend(hidden, found.hidden);
    descend(classifier, found.classifier);
    return static_cast<double>(found.loss[0]);
  });
}

template <class T>
std::vector<double> train_dense() {
  return train<T>([&](auto const& problem, std::vector<double>& hidden, std::vector<double>& classifier) {
    auto const expected = reference_gradient(problem);
    descend(hidden, expected.hidden);
    descend(classifier, expected.classifier);
    return reference_loss(problem).total;
  });
}

double largest_difference(std::vector<double> const& a, std::vector<double> const& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double const difference = std::fabs(a[i] - b[i]);
    largest = difference <= largest ? largest : difference;
  }
  return largest;
}

}  // namespace

TEST_CASE("training with the loss gives the dense loss's curve", "[host][slow][threads]") {
  auto const dense = train_dense<float>();
  CHECK(dense.back() < 0.5 * dense.front());
  CHECK(largest_difference(train_cut<loss_on_small_tiles<float>, float>(), dense) < 1e-4);
  auto const dense_bf16 = train_dense<bfloat16>();
  CHECK(largest_difference(train_cut<loss_on_small_tiles<bfloat16>, bfloat16>(), dense_bf16) < 5e-3);
  CHECK(largest_difference(train_cut<loss_on_small_tiles<bfloat16, gradient_filter<12, 16, 16>>, bfloat16>(),
                           dense_bf16) < 1e-2);
}
