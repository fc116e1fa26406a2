// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Maps of sums: what becomes of a sum of a matrix product, while it is in a register, before it is stored.
///
///     struct soft_capped {                              // a user's own: any trivially copyable function object
///       float cap;
///       TESSERA_FN float operator()(float sum, std::int64_t, std::int64_t) const { return cap * tanhf(sum / cap); }
///     };
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// Leaves sums as they are.
struct plain_sum {
  template <class Sum>
  TESSERA_FN constexpr Sum operator()(Sum sum, std::int64_t, std::int64_t) const {
    return sum;
  }
};

/// Adds a number to each column.
template <class Bias>
struct add_bias {
  array_view<Bias const> bias;
  template <class Sum>
  TESSERA_FN constexpr float operator()(Sum sum, std::int64_t, std::int64_t column) const {
    return static_cast<float>(sum) + static_cast<float>(load(bias[column]));
  }
};

/// Multiplies by a number: 8-bit operands with one scale each.
struct scaled_sum {
  float scale;
  template <class Sum>
  TESSERA_FN constexpr float operator()(Sum sum, std::int64_t, std::int64_t) const {
    return static_cast<float>(sum) * scale;
  }
};

}  // namespace v0
}  // namespace tessera
