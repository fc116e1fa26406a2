// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Divergence.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// The distribution of a row of logits, as logarithms.
inline std::vector<float> log_softmax(std::vector<double> const& logits) {
  double largest = -HUGE_VAL;
  for (double const logit : logits) {
    largest = std::fmax(largest, logit);
  }
  double sum = 0;
  for (double const logit : logits) {
    sum += std::exp(logit - largest);
  }
  std::vector<float> found;
  found.reserve(logits.size());
  for (double const logit : logits) {
    found.push_back(static_cast<float>(logit - largest - std::log(sum)));
  }
  return found;
}

/// The sums over a row of values, of slopes, and of the log-ratio that a divergence is the mean of.
struct divergence_sums {
  double value = 0;
  double slope = 0;
  double ratio = 0;
};
template <Divergence D>
divergence_sums sums_of_row(D const& divergence, std::vector<float> const& log_p, std::vector<float> const& log_q) {
  divergence_sums sums;
  for (std::size_t j = 0; j < log_p.size(); ++j) {
    sums.value += static_cast<double>(divergence.value(log_p[j], log_q[j]));
    sums.slope += static_cast<double>(divergence.slope(log_p[j], log_q[j]));
    double const of_p = static_cast<double>(log_p[j]);
    double const of_q = static_cast<double>(log_q[j]);
    bool const by_teacher = v0::detail::ratio_of<D> == mean_log_ratio::teacher;
    sums.ratio += by_teacher ? std::exp(of_p) * (of_p - of_q) : std::exp(of_q) * (of_q - of_p);
  }
  return sums;
}

}  // namespace detail

/// Checks `divergence` on rows of logits, finite and of magnitudes up to 20, each the student's against the next row as
/// the teacher's, and each against itself. Slopes are compared with differences of the sum of values between logits a
/// 64th lower and higher, to a 200th of the largest slope beside the rounding of fp32.
template <Divergence D>
law_report check_divergence_laws(D const& divergence, std::vector<std::vector<double>> const& rows) {
  auto const is_same = [](float a, float b) { return bit_cast<std::uint32_t>(a) == bit_cast<std::uint32_t>(b); };
  law_report report;
  alignas(D) std::byte bytes[sizeof(D)];
  std::memcpy(bytes, &divergence, sizeof(D));
  D const& copy = *reinterpret_cast<D const*>(bytes);
  report.expect(divergence.value(-infinity, -infinity) == 0.0F && divergence.slope(-infinity, -infinity) == 0.0F,
                "an entry that neither has counts nothing", "minus infinities");
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::string const name = "row " + std::to_string(row);
    std::vector<double> logits = rows[row];
    auto const log_q = detail::log_softmax(logits);
    auto const log_p = detail::log_softmax(rows[(row + 1) % rows.size()]);
    double const rounding = 0x1p-18 * static_cast<double>(logits.size());
    report.expect(std::fabs(detail::sums_of_row(divergence, log_q, log_q).value) <= rounding,
                  "a distribution does not diverge from itself", name);
    auto const sums = detail::sums_of_row(divergence, log_p, log_q);
    report.expect(sums.value >= -rounding, "no divergence is negative", name);
    report.expect(v0::detail::ratio_of<D> == mean_log_ratio::none ||
                      std::fabs(sums.value - sums.ratio) <= rounding + 0x1p-16 * std::fabs(sums.ratio),
                  "a divergence with a ratio is the mean of log-ratios", name);
    double steepest = 0;
    std::vector<double> gradient;
    for (std::size_t j = 0; j < logits.size(); ++j) {
      float const slope = divergence.slope(log_p[j], log_q[j]);
      report.expect(is_same(slope, divergence.slope(log_p[j], log_q[j])) &&
                        is_same(slope, copy.slope(log_p[j], log_q[j])) &&
                        is_same(divergence.value(log_p[j], log_q[j]), copy.value(log_p[j], log_q[j])),
                    "values and slopes depend on the arguments alone", name);
      gradient.push_back(static_cast<double>(slope) - std::exp(static_cast<double>(log_q[j])) * sums.slope);
      steepest = std::fmax(steepest, std::fabs(gradient.back()));
    }
    for (std::size_t j = 0; j < logits.size(); ++j) {
      double const logit = logits[j];
      double const step = 0x1p-6;
      logits[j] = logit + step;
      double const above = detail::sums_of_row(divergence, log_p, detail::log_softmax(logits)).value;
      logits[j] = logit - step;
      double const below = detail::sums_of_row(divergence, log_p, detail::log_softmax(logits)).value;
      logits[j] = logit;
      report.expect(std::fabs((above - below) / (2 * step) - gradient[j]) <= steepest / 200 + rounding / step,
                    "slopes make the derivative by the logit", name + ", entry " + std::to_string(j));
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
