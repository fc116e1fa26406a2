// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `jensen_shannon`: the generalized Jensen-Shannon divergence of a student and its teacher, as in on-policy
/// distillation (Agarwal, Vieillard, Zhou and others: arXiv 2306.13649, equation 1).
///
///     D = beta KL(p || m) + (1 - beta) KL(q || m)          m = beta p + (1 - beta) q
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/map/divergence.hpp>

namespace tessera {
inline namespace v0 {

/// The divergence of both distributions from their mixture. It is at most log 2 nats, whatever the logits are.
struct jensen_shannon {
  float beta = 0.5F;  ///< the teacher's part of the mixture, between 0 and 1 and neither of them

  /// Throws value_error, in the name of `function`, unless beta is between 0 and 1.
  void check_values(char const* function) const {
    check<value_error>(beta > 0.0F && beta < 1.0F, function, ": the beta of jensen_shannon is ", beta,
                       " but must be above 0 and below 1");
  }

  /// beta p (log p - log m) + (1 - beta) q (log q - log m); a term with p or q of 0 is 0.
  TESSERA_FN float value(float log_p, float log_q) const {
    float const p = exp(log_p);
    float const q = exp(log_q);
    float const log_m = log_of_mixture(log_p, log_q);
    float const of_teacher = p == 0.0F ? 0.0F : beta * p * (log_p - log_m);
    return of_teacher + (q == 0.0F ? 0.0F : (1.0F - beta) * q * (log_q - log_m));
  }
  /// (1 - beta) q (log q - log m).
  TESSERA_FN float slope(float log_p, float log_q) const {
    float const q = exp(log_q);
    return q == 0.0F ? 0.0F : (1.0F - beta) * q * (log_q - log_of_mixture(log_p, log_q));
  }

 private:
  /// log m, also where both probabilities are denormal and products with them would be 0.
  [[nodiscard]] TESSERA_FN float log_of_mixture(float log_p, float log_q) const {
    float const larger = maximum(log_p, log_q);
    return larger + log(beta * exp(log_p - larger) + (1.0F - beta) * exp(log_q - larger));
  }
};
static_assert(Divergence<jensen_shannon>);

}  // namespace v0
}  // namespace tessera
