// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `store_sums`: the epilogue of gemm_tiles that writes a matrix of any strides. Each sum goes through a map first
/// (concepts/sum_map.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A mapped sum as an element of the result, rounded to the nearest.
template <class Output, class Value>
TESSERA_FN constexpr Output stored_sum(Value value) {
  if constexpr (std::is_integral_v<Output>) {
    static_assert(std::is_same_v<Output, Value>, "tessera: integer results take integer sums as they are");
    return value;
  } else {
    return store<Output>(static_cast<float>(value));
  }
}

}  // namespace detail

template <class Output, SumMap Map>
struct store_sums {
  matrix_view<Output> target;
  Map map;

  template <class Sum>
  TESSERA_FN constexpr void operator()(std::int64_t row, std::int64_t column, Sum sum) const {
    target(row, column) = detail::stored_sum<Output>(map(sum, row, column));
  }
};

}  // namespace v0
}  // namespace tessera
