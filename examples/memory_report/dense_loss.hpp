// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss of a classifier as it is usually computed, for comparison: all logits in memory, then their gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

namespace tessera_examples {

/// A program with a group for each token: from the token's logits it computes the loss and, where there is room, the
/// gradient of the mean loss by the logits.
struct differentiate_softmax {
  static constexpr int lanes = 1;
  struct scratch_type {};

  tessera::matrix_view<float const> logits;
  tessera::array_view<std::int32_t const> labels;
  tessera::array_view<float> losses;
  tessera::matrix_view<tessera::bfloat16> gradient;

  template <class Group>
  void operator()(Group const&, std::int64_t token, scratch_type&) const {
    float largest = logits(token, 0);
    for (std::int64_t entry = 1; entry < logits.extent(1); ++entry) {
      largest = std::max(largest, logits(token, entry));
    }
    float sum = 0;
    for (std::int64_t entry = 0; entry < logits.extent(1); ++entry) {
      sum += std::exp(logits(token, entry) - largest);
    }
    losses[token] = largest - logits(token, labels[token]) + std::log(sum);
    if (gradient.data == nullptr) {
      return;
    }
    float const scale = 1 / static_cast<float>(logits.extent(0));
    for (std::int64_t entry = 0; entry < logits.extent(1); ++entry) {
      float const softmax = std::exp(logits(token, entry) - largest) / sum;
      float const by_logit = scale * (softmax - (entry == labels[token] ? 1.0F : 0.0F));
      gradient(token, entry) = tessera::store<tessera::bfloat16>(by_logit);
    }
  }
};

/// The loss by tessera's matrix products, so that only the method differs.
class dense_loss {
 public:
  using inputs = tessera::cut_cross_entropy::inputs<std::int32_t>;

  dense_loss(tessera::cpu const& exec, inputs const& in, bool with_gradients)
      : exec_(exec),
        in_(in),
        logits_(exec, in.hidden.extent(0) * in.classifier.extent(0)),
        gradient_(exec, with_gradients ? logits_.size() : 0),
        losses_(exec, in.hidden.extent(0)) {}

  void forward() {
    layer::forward(exec_, in_.hidden, in_.classifier, matrix(logits_.data()));
    exec_.run(differentiate_softmax{matrix<float const>(logits_.data()), in_.labels, losses_.view(),
                                    matrix(gradient_.data())},
              in_.hidden.extent(0));
  }
  void backward(tessera::linear_loss_gradients<float> const& out) {
    auto const gradient = matrix<tessera::bfloat16 const>(gradient_.data());
    layer::forward(exec_, gradient, in_.classifier.transposed(), out.hidden);
    layer::forward(exec_, gradient.transposed(), in_.hidden.transposed(), out.classifier);
  }

 private:
  using layer = tessera::linear<tessera::bfloat16>;
  template <class T>
  tessera::matrix_view<T> matrix(T* data) const {
    return {data, {in_.hidden.extent(0), in_.classifier.extent(0)}};
  }

  tessera::cpu const& exec_;
  inputs in_;
  tessera::buffer<float> logits_;
  tessera::buffer<tessera::bfloat16> gradient_;
  tessera::buffer<float> losses_;
};

}  // namespace tessera_examples
