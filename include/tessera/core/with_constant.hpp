// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `with_constant`: turns a number that is known at run time into a compile-time constant, for programs that are
/// compiled for a few numbers; `each_constant`: calls a function with 0, 1, ... as constants, for arrays in registers,
/// whose elements have no addresses.
///
///     tessera::with_constant<64, 128, 256>(channels, [&](auto constant) { run<constant.value>(call); });
///     tessera::each_constant<parts>([&](auto part) { multiply(scratch.values, totals[part.value]); });
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/config.hpp>

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

namespace detail {

template <class Use, int... Numbers>
TESSERA_FN constexpr void use_constants(Use const& use, std::integer_sequence<int, Numbers...>) {
  (static_cast<void>(use(std::integral_constant<int, Numbers>{})), ...);
}

}  // namespace detail

/// Calls use(std::integral_constant<int, i>{}) for each i from 0 to Count - 1, in order. Device code takes its `value`:
/// the conversion to int is a function of the host.
template <int Count, class Use>
TESSERA_FN constexpr void each_constant(Use const& use) {
  detail::use_constants(use, std::make_integer_sequence<int, Count>{});
}

}  // namespace v0
}  // namespace tessera
