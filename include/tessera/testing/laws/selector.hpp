// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Selector.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/concepts/selector.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/reducer.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// The laws of budget(), which Selectors and ChunkSelectors have in common.
template <class S>
void check_budget(law_report& report, S const& selector) {
  std::int64_t before = 0;
  for (std::int64_t candidates = 0; candidates < 2000; ++candidates) {
    std::int64_t const taken = selector.budget(candidates);
    std::string const name = std::to_string(taken) + " of " + std::to_string(candidates);
    report.expect(0 <= taken && taken <= candidates, "budget(n) is between 0 and n", name);
    report.expect(before <= taken, "budget(n) never shrinks when n grows", name);
    before = taken;
  }
}

}  // namespace detail

/// Checks S on one channel of a chunk of `keys`, and each of the `queries`. Scores may differ by `tolerance`, relative
/// to the larger of 1 and the score. The summary is checked on the keys with `same`.
template <Selector S, class Same>
law_report check_laws(std::vector<float> const& keys, std::vector<float> const& queries, double tolerance, Same same,
                      S const& selector = {}) {
  law_report report;
  using reducer_type = summary_reducer_t<S>;
  auto const reducer = selector.summary();
  std::vector<typename reducer_type::input_type> const inputs(keys.begin(), keys.end());
  report.include("summary(): ", check_laws<reducer_type>(inputs, same, reducer));
  auto const whole = detail::reduce_piece(reducer, inputs, 0, inputs.size());
  auto const whole_landmark = selector.landmark(whole);
  for (float query : queries) {
    float const score = selector.score(query, whole_landmark);
    std::string const name = "query " + std::to_string(query);
    report.expect(std::isfinite(score), "finite keys and queries have a finite score", name);
    report.expect(score == selector.score(query, selector.landmark(whole)) || std::isnan(score),
                  "the same keys and query have the same score", name);
    for (std::size_t cut = 0; cut <= inputs.size(); ++cut) {
      auto const pieces = detail::merged(reducer, detail::reduce_piece(reducer, inputs, 0, cut),
                                         detail::reduce_piece(reducer, inputs, cut, inputs.size()));
      report.expect(is_close(score, selector.score(query, selector.landmark(pieces)), tolerance),
                    "a chunk summarised in two pieces scores as the whole", name + ", cut at " + std::to_string(cut));
    }
  }
  detail::check_budget(report, selector);
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
