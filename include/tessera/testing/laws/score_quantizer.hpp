// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a ScoreQuantizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/concepts/score_quantizer.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/scale_quantizer.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

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
