// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `jensen_shannon`: the generalized Jensen-Shannon divergence of a student and its teacher, as in on-policy
/// distillation (Agarwal, Vieillard, Zhou and others: arXiv 2306.13649, equation 1).
///
///     D = beta KL(p || m) + (1 - beta) KL(q || m)          m = beta p + (1 - beta) q
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
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
    float const apart = log_q - log_p;
    float const log_m = log_of_mixture(apart);
    float const of_teacher = apart > 0.0F ? -absolute(apart) - log_m : -log_m;
    return (p == 0.0F ? 0.0F : beta * p * of_teacher) + slope(log_p, log_q);
  }
  /// (1 - beta) q (log q - log m).
  TESSERA_FN float slope(float log_p, float log_q) const {
    float const q = exp(log_q);
    float const apart = log_q - log_p;
    float const log_m = log_of_mixture(apart);
    float const of_student = apart > 0.0F ? -log_m : -absolute(apart) - log_m;
    return q == 0.0F ? 0.0F : (1.0F - beta) * q * of_student;
  }

 private:
  /// log m, less that of the larger one of p and q, for log q - log p. Only their ratio counts, which is a number also
  /// where both are denormal.
  [[nodiscard]] TESSERA_FN float log_of_mixture(float apart) const {
    constexpr float log2_e = 1.44269504F;
    float const smaller = exp2(-log2_e * absolute(apart));
    float const of_larger = apart > 0.0F ? 1.0F - beta : beta;
    return log_of_part((1.0F - of_larger) * smaller + of_larger);
  }
  /// The natural logarithm of a normal number of at most 1, within 2 units in the last place; of a NaN some number. It
  /// leaves out the other cases of log(): programs of logits are bound by instructions on devices.
  [[nodiscard]] TESSERA_FN static float log_of_part(float value) {
    constexpr std::uint32_t two_thirds = 0x3f2aaaabU;
    constexpr float log_2 = 0.693147181F;
    std::uint32_t const power = (bit_cast<std::uint32_t>(value) - two_thirds) & 0xff800000U;
    float const x = bit_cast<float>(bit_cast<std::uint32_t>(value) - power) - 1.0F;  // from -1/3 to 1/3
    // (log(1 + x) - x) / x^2, with the least largest error of log(1 + x), 2.6e-8 of it
    float sum = 0.14026332F;
    sum = sum * x - 0.15388557F;
    sum = sum * x + 0.13995813F;
    sum = sum * x - 0.16415958F;
    sum = sum * x + 0.20011169F;
    sum = sum * x - 0.2500782F;
    sum = sum * x + 0.33333197F;
    sum = sum * x - 0.49999937F;
    float const exponent = static_cast<float>(static_cast<std::int32_t>(power));  // times 2^23
    return exponent * (log_2 * 0x1p-23F) + (sum * (x * x) + x);
  }
};
static_assert(Divergence<jensen_shannon>);

}  // namespace v0
}  // namespace tessera
