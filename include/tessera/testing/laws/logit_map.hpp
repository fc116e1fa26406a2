// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a LogitMap.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/concepts/logit_map.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

/// Checks `map` on `logits`, rows of `entries` finite logits, one row for each token. A slope is compared with the
/// difference of the map between a logit a 64th lower and one a 64th higher (more for logits beyond 64), of which no
/// corner of the map may lie in between. They agree to a 200th of steepest(), beside the difference's own rounding.
template <LogitMap M>
law_report check_logit_map_laws(M const& map, std::vector<float> const& logits, std::int64_t entries) {
  auto const is_same = [](float a, float b) { return bit_cast<std::uint32_t>(a) == bit_cast<std::uint32_t>(b); };
  auto const size = static_cast<std::int64_t>(logits.size());
  law_report report;
  std::vector<float> found;
  std::vector<float> slopes;
  for (std::int64_t i = 0; i < size; ++i) {
    float const logit = logits[static_cast<std::size_t>(i)];
    found.push_back(map(logit, i / entries, i % entries));
    slopes.push_back(map.slope(logit, i / entries, i % entries));
  }
  alignas(M) std::byte bytes[sizeof(M)];
  std::memcpy(bytes, &map, sizeof(M));
  M const& copy = *reinterpret_cast<M const*>(bytes);
  double const steepest = static_cast<double>(map.steepest());
  report.expect(steepest > 0 && std::isfinite(steepest), "steepest() is positive and finite", std::to_string(steepest));
  for (std::int64_t i = size; i-- > 0;) {
    std::int64_t const token = i / entries;
    std::int64_t const entry = i % entries;
    float const logit = logits[static_cast<std::size_t>(i)];
    float const value = found[static_cast<std::size_t>(i)];
    float const slope = slopes[static_cast<std::size_t>(i)];
    std::string const name =
        "logit " + std::to_string(logit) + ", token " + std::to_string(token) + ", entry " + std::to_string(entry);
    report.expect(is_same(map(logit, token, entry), value) && is_same(map.slope(logit, token, entry), slope),
                  "the result and the slope depend on the arguments alone", name);
    report.expect(is_same(copy(logit, token, entry), value) && is_same(copy.slope(logit, token, entry), slope),
                  "a copy of the bytes is the same map", name);
    report.expect(static_cast<double>(std::fabs(slope)) <= steepest * (1 + 0x1p-20),
                  "no slope is steeper than steepest()", name);
    float const step = 0x1p-6F * std::fmax(1.0F, 0x1p-6F * std::fabs(logit));
    float const low = logit - step;
    float const high = logit + step;
    double const below = static_cast<double>(map(low, token, entry));
    double const above = static_cast<double>(map(high, token, entry));
    double const width = static_cast<double>(high) - static_cast<double>(low);
    double const rounding = 0x1p-22 * (std::fabs(below) + std::fabs(above)) / width;
    report.expect(std::fabs((above - below) / width - static_cast<double>(slope)) <= steepest / 200 + rounding,
                  "the slope is the derivative by the logit", name);
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
