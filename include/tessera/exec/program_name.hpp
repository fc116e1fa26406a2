// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `program_name<P>()`: the name of a program's type without namespaces and template arguments, for messages.
///
///     program_name<tessera::merge_attention<M, float>>() == "merge_attention"
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

}  // namespace detail

/// The name of P without namespaces and template arguments; it lives as long as the process.
template <class P>
[[nodiscard]] constexpr std::string_view program_name() {
  std::string_view name = detail::text_with_name<P>();
  std::size_t const first = name.find("P = ");
  if (first == std::string_view::npos) {
    return name;
  }
  name.remove_prefix(first + 4);
  name = name.substr(0, name.find_first_of("<;]"));
  std::size_t const scope = name.rfind("::");
  return scope == std::string_view::npos ? name : name.substr(scope + 2);
}

}  // namespace v0
}  // namespace tessera
