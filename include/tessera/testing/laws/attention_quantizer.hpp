// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a ScaleQuantizer, and of a ScoreQuantizer.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/quantizer.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// The number that a code is in products.
template <class Code>
double number_of(Code code) {
  if constexpr (std::is_integral_v<Code>) {
    return static_cast<double>(code);
  } else {
    return static_cast<double>(load(code));
  }
}

/// Checks the codes of one value of a group, by encode_scaled() and by encode().
template <ScaleQuantizer Q>
void check_scaled_code(law_report& report, Q const& quantizer, float value, typename Q::params_type const& params,
                       code_scale const& fitted) {
  std::string const name = "value " + std::to_string(value);
  double const scale = static_cast<double>(fitted.scale);
  double const by_scale = number_of(Q::encode_scaled(value, fitted.reciprocal));
  double const by_fit = static_cast<double>(quantizer.decode(quantizer.encode(value, params), params));
  double const exact = static_cast<double>(value);
  double const slack = 1e-5 * std::fabs(exact) + 1e-44;  // rounding may decide between two codes that are as near
  report.expect(std::fabs(by_scale * scale - exact) <= std::fabs(by_fit - exact) + slack,
                "encode_scaled is as near as encode", name);
  report.expect(number_of(Q::encode_scaled(-value, fitted.reciprocal)) == -by_scale,
                "the opposite value has the opposite code", name);
  report.expect(number_of(Q::encode_scaled(value, 0.0F)) == 0.0, "a reciprocal of 0 gives the code of 0", name);
}

}  // namespace detail

/// Checks Q as check_laws() for a Quantizer does, and encode_scaled() with the scale of the group `values`, of which
/// all are finite and some is not 0.
template <ScaleQuantizer Q>
law_report check_scale_laws(std::vector<float> const& values, Q const& quantizer = {}) {
  law_report report = check_laws<Q>(values, equal_states{}, quantizer);
  float largest = 0;
  for (float value : values) {
    largest = std::fmax(largest, std::fabs(value));
  }
  float const highest = static_cast<float>(Q::highest);
  code_scale const fitted = fit_scale(largest, highest);
  auto const params = detail::fit_to(quantizer, values);
  for (float value : values) {
    detail::check_scaled_code(report, quantizer, value, params, fitted);
  }
  bool const has_normal_scale = largest / highest > smallest_code_scale;
  double const most = detail::number_of(Q::encode_scaled(largest, fitted.reciprocal));
  report.expect(!has_normal_scale || most == static_cast<double>(highest),
                "the largest magnitude gets the largest code", std::to_string(most) + " of " + std::to_string(highest));
  return report;
}

namespace detail {

/// Checks the groups of heads of some lengths, each a multiple of 128.
template <TokenGroups Groups>
law_report check_groups() {
  constexpr std::int64_t block = 128;
  law_report report;
  for (std::int64_t tokens : {block, 2 * block, 5 * block}) {
    std::vector<std::int64_t> block_of(static_cast<std::size_t>(Groups::count(tokens)), -1);
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::string const name = "token " + std::to_string(token) + " of " + std::to_string(tokens);
      std::int64_t const group = Groups::group_of(token);
      if (group < 0 || group >= Groups::count(tokens)) {
        report.expect(false, "a token's group is below count()", name);
        continue;
      }
      std::int64_t& own = block_of[static_cast<std::size_t>(group)];
      report.expect(own == -1 || own == token / block || Groups::is_whole, "a group lies within 128 tokens", name);
      own = token / block;
    }
    for (std::int64_t own : block_of) {
      report.expect(own >= 0, "every group has a token", std::to_string(tokens) + " tokens");
    }
    report.expect(!Groups::is_whole || Groups::count(tokens) == 1, "all tokens of a head are one group");
  }
  return report;
}

}  // namespace detail

/// Checks Q on `values` as check_scale_laws() does, and the groups of its granularity.
template <ScoreQuantizer Q>
law_report check_score_laws(std::vector<float> const& values, Q const& quantizer = {}) {
  law_report report = check_scale_laws<Q>(values, quantizer);
  report.include("queries: ", detail::check_groups<typename Q::granularity_type::queries>());
  report.include("keys: ", detail::check_groups<typename Q::granularity_type::keys>());
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
