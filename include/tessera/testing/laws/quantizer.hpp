// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Quantizer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/reducer.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

template <Quantizer Q>
typename Q::params_type fit_to(Q const& quantizer, std::vector<float> const& values) {
  auto const reducer = quantizer.range();
  auto range = reducer.identity();
  for (float value : values) {
    reducer.push(range, value);
  }
  return quantizer.fit(range);
}

/// `values`, and some numbers far beyond them, in ascending order.
inline std::vector<float> with_values_beyond(std::vector<float> values) {
  float const largest = std::numeric_limits<float>::max();
  float const infinity = std::numeric_limits<float>::infinity();
  for (float far : {0.0F, 1.0F, 1e9F, largest, infinity}) {
    values.push_back(far);
    values.push_back(-far);
  }
  values.erase(std::remove_if(values.begin(), values.end(), [](float v) { return std::isnan(v); }), values.end());
  std::sort(values.begin(), values.end());
  return values;
}

/// Checks the laws of encode and decode for one group, with parameters fitted to it.
template <Quantizer Q>
void check_group(law_report& report, Q const& quantizer, std::vector<float> const& group, std::string const& name) {
  auto const params = fit_to(quantizer, group);
  float before = -std::numeric_limits<float>::infinity();
  for (float value : with_values_beyond(group)) {
    std::string const example = name + ", value " + std::to_string(value);
    auto const code = quantizer.encode(value, params);
    float const decoded = quantizer.decode(code, params);
    report.expect(std::isfinite(decoded), "decoded values are finite", example);
    report.expect(quantizer.encode(decoded, params) == code, "encode is idempotent", example);
    report.expect(before <= decoded || std::isnan(decoded), "encode and decode keep order", example);
    before = decoded;
  }
  if constexpr (requires { quantizer.max_error(params); }) {
    for (float value : group) {
      float const decoded = quantizer.decode(quantizer.encode(value, params), params);
      double const moved = std::fabs(double{value} - double{decoded});
      report.expect(!std::isfinite(value) || moved <= double{quantizer.max_error(params)},
                    "no value is moved by more than max_error", name + ", value " + std::to_string(value));
    }
  }
}

}  // namespace detail

/// Checks Q on the group `values`, on each of its values alone, on an empty group, and on values beyond those groups.
/// Infinities may be among the values; NaNs are left out of the comparisons. The range Reducer is checked on the same
/// values with `same`, as by `check_laws` for a Reducer.
template <Quantizer Q, class Same = equal_states>
law_report check_laws(std::vector<float> const& values, Same same = {}, Q const& quantizer = {}) {
  law_report report;
  using reducer_type = range_reducer_t<Q>;
  std::vector<typename reducer_type::input_type> const inputs(values.begin(), values.end());
  report.include("range(): ", check_laws<reducer_type>(inputs, same, quantizer.range()));
  detail::check_group(report, quantizer, values, "the whole group");
  detail::check_group(report, quantizer, {}, "an empty group");
  for (float value : values) {
    detail::check_group(report, quantizer, {value, value}, "a group of equal values");
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
