// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `forward_kl`: the Kullback-Leibler divergence of a student from its teacher, sum_j p_j (log p_j - log q_j), the loss
/// of distillation (Hinton, Vinyals, Dean: "Distilling the Knowledge in a Neural Network", arXiv 1503.02531).
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/map/divergence.hpp>

namespace tessera {
inline namespace v0 {

/// KL(p || q), p being the teacher's distribution: the student is to have all that the teacher has.
struct forward_kl {
  /// It is the mean of log-ratios by the teacher's probabilities.
  static constexpr mean_log_ratio ratio = mean_log_ratio::teacher;

  /// p (log p - log q); 0 where p is 0.
  TESSERA_FN float value(float log_p, float log_q) const {
    float const p = exp(log_p);
    return p == 0.0F ? 0.0F : p * (log_p - log_q);
  }
  /// -p.
  TESSERA_FN float slope(float log_p, float) const { return -exp(log_p); }
};
static_assert(Divergence<forward_kl>);

}  // namespace v0
}  // namespace tessera
