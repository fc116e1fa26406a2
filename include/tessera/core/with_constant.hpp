// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `with_constant`: turns a number that is known at run time into a compile-time constant, for programs that are
/// compiled for a few numbers.
///
///     tessera::with_constant<64, 128, 256>(channels, [&](auto constant) { run<constant.value>(call); });
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera {
inline namespace v0 {

/// Calls `use` with the one of the Numbers that `number` is, as a std::integral_constant<int, ...>, and returns what
/// `use` returns, which has one type for all of them. The last of the Numbers stands for all other numbers too: callers
/// refuse these before.
template <int First, int... Others, class Use>
auto with_constant(std::int64_t number, Use const& use) {
  if constexpr (sizeof...(Others) == 0) {
    return use(std::integral_constant<int, First>{});
  } else {
    return number == First ? use(std::integral_constant<int, First>{}) : with_constant<Others...>(number, use);
  }
}

}  // namespace v0
}  // namespace tessera
