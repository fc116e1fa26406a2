// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Distillation with a skewed divergence (DistiLLM: arXiv 2402.03898, section 3.1). Student and teacher are given by
/// their hidden states h, g and classifiers C, B, as models leave them, and no logits are in memory as a whole:
///
///     p = softmax(g B^T / temperature)      q = softmax(h C^T / temperature)      m = skew p + (1 - skew) q
///     loss_i = sum_j p_ij (log p_ij - log m_ij)      loss: their mean, by the tokens' weights
///
/// `skewed_kl` is a user's own Divergence: a value and a slope for each entry. The library's linear_distillation has
/// the products, four in each pass, and gives gradients by h and C. FLOPs: 2 tokens vocabulary (5 channels + 3 of the
/// teacher's). Bytes beside the products: 40 a token and entry, of parts that take options.workspace_budget.
#pragma once

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/core/math.hpp>

namespace tessera_examples {

using namespace tessera;

/// The divergence of the teacher from a mixture of both; at most -log(skew), also where the student has no probability.
struct skewed_kl {
  float skew = 0.1F;  ///< the teacher's part of the mixture, between 0 and 1; as it goes to 0, this is forward_kl

  /// p (log p - log m).
  TESSERA_FN float value(float log_p, float log_q) const {
    float const p = tessera::exp(log_p);
    return p == 0 ? 0.0F : p * (log_p - log_of_mixture(log_p, log_q));
  }
  /// q times the derivative by q: -(1 - skew) p q / m.
  TESSERA_FN float slope(float log_p, float log_q) const {
    bool const has_both = tessera::exp(log_p) > 0 && log_q > -infinity;
    return has_both ? -(1 - skew) * tessera::exp(log_p + log_q - log_of_mixture(log_p, log_q)) : 0.0F;
  }

 private:
  [[nodiscard]] TESSERA_FN float log_of_mixture(float log_p, float log_q) const {
    float const larger = maximum(log_p, log_q);
    return larger + tessera::log(skew * tessera::exp(log_p - larger) + (1 - skew) * tessera::exp(log_q - larger));
  }
};
static_assert(Divergence<skewed_kl>);

/// Any other Divergence fits here, such as forward_kl, which needs half of the products of the forward pass.
using skew_distillation = linear_distillation<bfloat16, skewed_kl>;

/// Enqueues the loss and its gradients by the student's hidden states and classifier. `space`: of
/// skew_distillation::plan_backward() with the same options.
template <class Executor>
void skew_distillation_loss(Executor const& exec, skew_distillation::inputs const& in,
                            distillation_options const& options, distillation_outputs const& out,
                            linear_loss_gradients<bfloat16> const& gradients, workspace const& space) {
  skew_distillation::forward(exec, in, options, out, space);
  skew_distillation::backward(exec, in, options, {}, gradients, space);
}

}  // namespace tessera_examples
