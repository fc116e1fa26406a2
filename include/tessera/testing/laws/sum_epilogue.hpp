// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a SumEpilogue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/program/gemm/sum_epilogue.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// Gives the sums to the epilogue of a copy of `memory` in the order of `indices`, and gives the memory afterwards.
template <class T, class Make>
std::vector<T> after_sums(std::vector<T> memory, Make const& make, std::vector<float> const& sums, std::int64_t columns,
                          std::vector<std::int64_t> const& indices) {
  auto const epilogue = make(array_view<T>(memory));
  for (std::int64_t index : indices) {
    epilogue(index / columns, index % columns, sums[static_cast<std::size_t>(index)]);
  }
  return memory;
}

/// Which elements of two memories differ.
template <class T>
std::vector<bool> changes(std::vector<T> const& before, std::vector<T> const& after) {
  std::vector<bool> changed;
  for (std::size_t i = 0; i < before.size(); ++i) {
    changed.push_back(std::memcmp(&before[i], &after[i], sizeof(T)) != 0);
  }
  return changed;
}

}  // namespace detail

/// Checks the epilogue that make(array_view<T>) gives, which writes to a copy of `memory`, on `sums`, the rows of a
/// result of `columns` columns. For the second law each sum is given alone: `memory` must be such that it changes.
template <class T, class Make>
requires SumEpilogue<std::invoke_result_t<Make const&, array_view<T>>> law_report check_epilogue_laws(
    std::vector<T> const& memory, Make const& make, std::vector<float> const& sums, std::int64_t columns) {
  law_report report;
  std::vector<std::int64_t> indices(sums.size());
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  auto const expected = detail::after_sums(memory, make, sums, columns, indices);
  detail::shuffler random(7);
  for (int order = 1; order <= 4; ++order) {
    random.shuffle(indices);
    auto const found = detail::after_sums(memory, make, sums, columns, indices);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      report.expect(std::memcmp(&found[i], &expected[i], sizeof(T)) == 0, "sums come in any order",
                    "element " + std::to_string(i) + " of the memory");
    }
  }
  std::vector<bool> written(memory.size(), false);
  for (std::int64_t index : indices) {
    auto const changed = detail::changes(memory, detail::after_sums(memory, make, sums, columns, {index}));
    for (std::size_t i = 0; i < memory.size(); ++i) {
      report.expect(!changed[i] || !written[i], "no two sums write one address",
                    "element " + std::to_string(i) + " of the memory");
      written[i] = written[i] || changed[i];
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
