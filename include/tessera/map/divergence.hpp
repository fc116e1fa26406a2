// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Divergence: how far the distribution q of a student is from that of its teacher, p, as a sum over entries of the
/// vocabulary. Distillation makes the student's divergence small.
///
///     struct squared_distance {                                          // a user's own: sum of (q - p)^2
///       TESSERA_FN float value(float log_p, float log_q) const {
///         float const apart = tessera::exp(log_q) - tessera::exp(log_p);
///         return apart * apart;
///       }
///       TESSERA_FN float slope(float log_p, float log_q) const {         // q times the derivative by q
///         return tessera::exp(log_q) * 2.0F * (tessera::exp(log_q) - tessera::exp(log_p));
///       }
///     };
///     using loss = tessera::linear_distillation<bfloat16, squared_distance>;
///
/// With v_j the value of entry j and s_j its slope, the divergence and its gradient by the student's logits a are
///
///     D = sum_j v_j          dD / da_j = s_j - q_j sum_k s_k
///
/// A divergence that is the mean of log-ratios, by p or by q, says so by `static constexpr mean_log_ratio ratio`. Its
/// value is then known after one pass over the logits, and others' after two.
///
/// Models: forward_kl, reverse_kl, jensen_shannon, and users' own.
///
/// Laws, checked by `tessera::testing::check_divergence_laws(divergence, rows)`:
///   1. Values and slopes depend on the arguments alone; a copy of the bytes is the same divergence.
///   2. The sum of values is 0 where q is p, and else not negative.
///   3. s_j - q_j sum_k s_k is the derivative of the sum of values by the logit of entry j.
///   4. An entry that neither p nor q has, with logarithms of minus infinity, has value 0 and slope 0.
///   5. If there is a `ratio`, the sum of values is that mean.
#pragma once

#include <concepts>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

/// Which mean of log-ratios a divergence is.
enum class mean_log_ratio {
  none,     ///< it is no such mean
  teacher,  ///< sum_j p_j (log p_j - log q_j)
  student,  ///< sum_j q_j (log q_j - log p_j)
};

// clang-format off
/// A divergence of two distributions: a trivially copyable pair of functions of the logarithms of an entry's
/// probabilities.
template <class D>
concept Divergence =
    (std::is_trivially_copyable_v<D>
        || because<"a divergence is trivially copyable, because programs carry it as bytes">) &&
    (requires(D const& divergence, float log_p, float log_q) {
       { divergence.value(log_p, log_q) } -> std::same_as<float>;
     } || because<"a divergence gives an entry's part of it: float value(float log_p, float log_q) const">) &&
    (requires(D const& divergence, float log_p, float log_q) {
       { divergence.slope(log_p, log_q) } -> std::same_as<float>;
     } || because<"a divergence gives q times its derivative by q: float slope(float log_p, float log_q) const">);
// clang-format on

namespace detail {

template <class D>
inline constexpr mean_log_ratio ratio_of = mean_log_ratio::none;
template <class D>
requires(std::same_as<std::remove_const_t<decltype(D::ratio)>, mean_log_ratio>)  //
    inline constexpr mean_log_ratio ratio_of<D> = D::ratio;

}  // namespace detail
}  // namespace v0
}  // namespace tessera
