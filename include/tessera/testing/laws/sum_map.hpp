// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a SumMap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

/// Checks `map` on `sums`, the rows of a result of `columns` columns.
template <SumMap M>
law_report check_map_laws(M const& map, std::vector<float> const& sums, std::int64_t columns) {
  using result_type = decltype(map(0.0F, columns, columns));
  auto const size = static_cast<std::int64_t>(sums.size());
  auto const at = [&](M const& own, std::int64_t i) {
    return own(sums[static_cast<std::size_t>(i)], i / columns, i % columns);
  };
  auto const is_same = [](result_type a, result_type b) { return std::memcmp(&a, &b, sizeof a) == 0; };
  law_report report;
  std::vector<result_type> found;
  for (std::int64_t i = 0; i < size; ++i) {
    found.push_back(at(map, i));
  }
  alignas(M) std::byte bytes[sizeof(M)];
  std::memcpy(bytes, &map, sizeof(M));
  M const& copy = *reinterpret_cast<M const*>(bytes);
  for (std::int64_t i = size; i-- > 0;) {
    std::string const name = "row " + std::to_string(i / columns) + ", column " + std::to_string(i % columns);
    result_type const first = found[static_cast<std::size_t>(i)];
    report.expect(is_same(at(map, i), first), "the result depends on the sum and its coordinate alone", name);
    report.expect(is_same(at(copy, i), first), "a copy of the bytes is the same map", name);
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
