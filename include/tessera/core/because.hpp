// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `because`: gives a requirement of a concept a sentence that says what to write, and that the compiler shows when a
/// type does not meet the requirement.
///
///     struct city {
///       char const* name() const;
///     };
///     template <class T>
///     concept Named = requires(T const& thing) { thing.name(); } || because<"a Named has name()">;
///     template <Named T>
///     struct sign {
///       T where;
///     };
///     using city_sign = sign<city>;   // sign<int>: error: … because<"a Named has name()"> … evaluated to false
///
/// Every compiler reports both sides of a failed `A || because<"…">`, so the sentence is shown beside the expression
/// that it explains. Keep `|| because<"…">` on one line: g++ shows that line at its default depth, and the expression
/// at fault with `-fconcepts-diagnostics-depth=2`. nvcc shows the line for class templates, not for functions.
#pragma once

#include <cstddef>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// A string literal as a template argument.
template <std::size_t Size>
struct sentence {
  char text[Size]{};  ///< the literal with its closing zero

  /// Copies the literal at compile time.
  consteval sentence(char const (&literal)[Size]) {  // NOLINT(google-explicit-constructor): a literal must convert
    for (std::size_t i = 0; i < Size; ++i) {
      text[i] = literal[i];
    }
  }
};

/// Never satisfied: its argument, the sentence, is all it is for.
template <sentence Why>
concept because = false;

}  // namespace v0
}  // namespace tessera
