// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `reverse_kl`: the Kullback-Leibler divergence of a teacher from its student, sum_j q_j (log q_j - log p_j), as in
/// MiniLLM (Gu, Dong, Wei, Huang: arXiv 2306.08543).
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/map/divergence.hpp>

namespace tessera {
inline namespace v0 {

/// KL(q || p), q being the student's distribution: the student is to have nothing that the teacher has not.
struct reverse_kl {
  /// It is the mean of log-ratios by the student's probabilities.
  static constexpr mean_log_ratio ratio = mean_log_ratio::student;

  /// q (log q - log p); 0 where q is 0.
  TESSERA_FN float value(float log_p, float log_q) const {
    float const q = exp(log_q);
    return q == 0.0F ? 0.0F : q * (log_q - log_p);
  }
  /// q (log q - log p + 1).
  TESSERA_FN float slope(float log_p, float log_q) const {
    float const q = exp(log_q);
    return q == 0.0F ? 0.0F : q * (log_q - log_p + 1.0F);
  }
};
static_assert(Divergence<reverse_kl>);

}  // namespace v0
}  // namespace tessera
