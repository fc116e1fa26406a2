// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `program_name<P>()`: the name of a program's type without namespaces and template arguments, for messages.
///
///     static_assert(program_name<tessera::merge_attention<M, float>>() == "merge_attention");
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The name of this function with its argument in it, as the compiler writes it: "... [with P = name; ...]".
template <class P>
[[nodiscard]] constexpr std::string_view text_with_name() {
  return __PRETTY_FUNCTION__;
}

/// Where in that text the name begins. This is the same for all types.
inline constexpr std::size_t start_of_name = text_with_name<int>().find("P = ") + 4;
static_assert(text_with_name<int>().find("P = ") != std::string_view::npos);

}  // namespace detail

/// The name of P without namespaces and template arguments; it lives as long as the process.
template <class P>
[[nodiscard]] constexpr std::string_view program_name() {
  // Each program is named at compile time: characters are visited once, which takes compilers the least.
  char const* first = detail::text_with_name<P>().data() + detail::start_of_name;
  char const* end = first;
  for (; *end != '<' && *end != ';' && *end != ']'; ++end) {
    if (*end == ':' && end[1] == ':') {
      first = end + 2;
      ++end;
    }
  }
  return {first, static_cast<std::size_t>(end - first)};
}

}  // namespace v0
}  // namespace tessera
