// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Adam (arXiv 1412.6980), the optimizer that most fine-tunings use, without weight decay.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace tessera_examples {

/// The state of Adam for a list of weights.
///
/// A weight whose gradient is small moves as far as one whose gradient is large: the step is the rate times the mean
/// gradient over the root of the mean squared gradient. Only a gradient that is exactly zero from the start moves
/// nothing.
class adam {
 public:
  static constexpr float mean_decay = 0.9F;
  static constexpr float square_decay = 0.999F;
  static constexpr float epsilon = 1e-8F;

  explicit adam(std::size_t weights) : means_(weights), squares_(weights) {}

  /// Moves the weights against the gradient. Both lists have as many elements as the state.
  void step(float rate, std::vector<float> const& gradient, std::vector<float>& weights) {
    ++steps_;
    auto const count = static_cast<double>(steps_);
    auto const of_means = static_cast<float>(1 / (1 - std::pow(static_cast<double>(mean_decay), count)));
    auto const of_squares = static_cast<float>(1 / (1 - std::pow(static_cast<double>(square_decay), count)));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      float const slope = gradient[i];
      means_[i] = mean_decay * means_[i] + (1 - mean_decay) * slope;
      squares_[i] = square_decay * squares_[i] + (1 - square_decay) * slope * slope;
      weights[i] -= rate * means_[i] * of_means / (std::sqrt(squares_[i] * of_squares) + epsilon);
    }
  }

 private:
  std::vector<float> means_;
  std::vector<float> squares_;
  long steps_ = 0;
};

}  // namespace tessera_examples
