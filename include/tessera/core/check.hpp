// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Host-side checks whose messages are built only when they fail, arithmetic on sizes that refuses to wrap, and the
/// step from a status word to an exception.
///
///     check<shape_error>(keys.extent(1) == queries.extent(1), "attention.forward: keys have ", keys.extent(1),
///                        " channels but queries have ", queries.extent(1));
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/status.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

inline void append(std::string& text, char const* part) {
  text += part;
}
inline void append(std::string& text, std::string const& part) {
  text += part;
}
template <class Number>
requires std::is_arithmetic_v<Number>
void append(std::string& text, Number part) {
  text += std::to_string(part);
}

}  // namespace detail

/// One string from pieces of text and numbers.
template <class... Parts>
[[nodiscard]] std::string join(Parts const&... parts) {
  std::string text;
  (detail::append(text, parts), ...);
  return text;
}

/// Throws `Exception` with the joined parts unless `holds`.
template <std::derived_from<error> Exception, class... Parts>
constexpr void check(bool holds, Parts const&... parts) {
  if (!holds) {
    throw Exception(join(parts...));
  }
}

/// `a * b` of two counts; a `shape_error` that names `function` if one is negative or the product does not fit.
[[nodiscard]] inline std::int64_t checked_multiply(char const* function, std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  bool const overflows = __builtin_mul_overflow(a, b, &product);
  check<shape_error>(!overflows && a >= 0 && b >= 0, function, ": ", a, " times ", b, " is not a size");
  return product;
}

/// The product of more counts, likewise.
template <std::convertible_to<std::int64_t>... More>
[[nodiscard]] std::int64_t checked_multiply(char const* function, std::int64_t a, std::int64_t b, std::int64_t c,
                                            More... more) {
  return checked_multiply(function, checked_multiply(function, a, b), c, more...);
}

/// `a + b` of two counts; a `shape_error` that names `function` if one is negative or the sum does not fit.
[[nodiscard]] inline std::int64_t checked_add(char const* function, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  bool const overflows = __builtin_add_overflow(a, b, &sum);
  check<shape_error>(!overflows && a >= 0 && b >= 0, function, ": ", a, " plus ", b, " is not a size");
  return sum;
}

/// Throws what a status word stands for: `value_error` or `shape_error` where the caller's values or sizes are at
/// fault, else `corrupt_data`.  The message names `function`, what failed, the code, and the position.
inline void throw_if_failed(status_word word, char const* function) {
  if (word.is_ok()) {
    return;
  }
  status_code const code = word.code();
  std::string const message =
      join(function, ": ", describe(code), " (code ", static_cast<int>(code), ") at position ", word.position());
  switch (code) {
    case status_code::bad_value:
    case status_code::out_of_range:
    case status_code::bad_length:
    case status_code::bad_new_tokens:
    case status_code::bad_slot:
    case status_code::bad_page_count:
    case status_code::bad_block:
      throw value_error(message);
    case status_code::capacity_exceeded:
    case status_code::full_tail:
      throw shape_error(message);
    default:
      if (code >= status_code::first_user_code) {
        throw value_error(message);
      }
      throw corrupt_data(message, word.position());
  }
}

}  // namespace v0
}  // namespace tessera
