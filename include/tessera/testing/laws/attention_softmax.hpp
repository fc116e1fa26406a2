// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of an AttentionSoftmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/reduce/attention_softmax.hpp>
#include <tessera/testing/laws/attention_quantizer.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// The natural logarithm of the sum of 2^score, in double.
inline double log_of_sum(std::vector<float> const& scores) {
  double const largest = static_cast<double>(*std::max_element(scores.begin(), scores.end()));
  double sum = 0;
  for (float score : scores) {
    sum += std::exp2(static_cast<double>(score) - largest);
  }
  return (largest + std::log2(sum)) * std::log(2.0);
}

/// The state of some scores that come in pieces of `size`; checks their weights and codes.
template <class S, class Q>
requires AttentionSoftmax<S, Q>
typename S::state_type weigh_in_pieces(law_report& report, std::vector<float> const& scores, std::size_t size,
                                       double tolerance) {
  S const softmax;
  auto state = softmax.identity();
  double const highest = static_cast<double>(Q::highest);
  for (std::size_t first = 0; first < scores.size(); first += size) {
    std::size_t const end = std::min(first + size, scores.size());
    float largest = -std::numeric_limits<float>::infinity();
    for (std::size_t i = first; i < end; ++i) {
      largest = std::max(largest, scores[i]);
    }
    softmax.turn(state, largest);
    for (std::size_t i = first; i < end; ++i) {
      auto const [code, weight] = softmax.template weigh<Q>(state, 1.0F, scores[i], false);
      std::string const name = "score " + std::to_string(scores[i]) + ", weight " + std::to_string(weight);
      double const own = static_cast<double>(weight);
      report.expect(own >= 0 && own <= 1, "weights are from 0 to 1", name);
      report.expect(std::fabs(number_of(code) - own * highest) <= tolerance * own * highest + 0.5,
                    "a code is the weight times the largest code", name);
      if constexpr (requires { requires std::is_same_v<typename S::numbers_of, S>; }) {
        auto const found = S::template weigh_number<Q>(state, 1.0F, scores[i], false);
        report.expect(static_cast<double>(found.number) == number_of(code) && found.weight == weight,
                      "weigh_number gives the number of the code", name);
        if constexpr (requires { S::weight_of_number; }) {
          report.expect(found.weight == found.number * S::weight_of_number,
                        "a weight is its code's number times weight_of_number", name);
        }
      }
      state.sum += weight;
    }
  }
  return state;
}

}  // namespace detail

/// Checks S with codes of Q on a row of finite scores. `tolerance`: of a weight and of its code, relative, and of
/// logarithms of sums.
template <class S, class Q>
requires AttentionSoftmax<S, Q> law_report check_softmax_laws(std::vector<float> const& scores, double tolerance) {
  law_report report;
  S const softmax;
  double const expected = detail::log_of_sum(scores);
  for (std::size_t size : {std::size_t{1}, std::size_t{3}, std::size_t{16}, scores.size()}) {
    auto const state = detail::weigh_in_pieces<S, Q>(report, scores, size, tolerance);
    report.expect(is_close(static_cast<double>(softmax.value(state)), expected, tolerance),
                  "pieces give the log-sum-exp of the row", "pieces of " + std::to_string(size));
  }
  for (std::size_t cut = 1; cut < scores.size(); cut += 7) {
    auto const middle = scores.begin() + static_cast<std::ptrdiff_t>(cut);
    auto const first = detail::weigh_in_pieces<S, Q>(report, {scores.begin(), middle}, 4, tolerance);
    auto const second = detail::weigh_in_pieces<S, Q>(report, {middle, scores.end()}, 4, tolerance);
    for (bool is_turned : {false, true}) {
      auto whole = is_turned ? second : first;
      softmax.merge(whole, is_turned ? first : second);
      report.expect(is_close(static_cast<double>(softmax.value(whole)), expected, tolerance),
                    "states of pieces merge to the state of both", "cut at " + std::to_string(cut));
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
