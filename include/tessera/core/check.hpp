// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Host-side checks whose messages are built only when they fail, arithmetic on sizes that throws instead of
/// overflowing, and the conversion of a status word to an exception.
///
///     check<shape_error>(keys.extent(1) == queries.extent(1), "attention.forward: keys have ", keys.extent(1),
///                        " channels but queries have ", queries.extent(1));
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#if !defined(__CUDACC_RTC__)
#include <cstdio>
#include <string>
#endif

#include <tessera/core/error.hpp>
#include <tessera/core/status.hpp>

namespace tessera {
inline namespace v0 {
#if defined(__CUDACC_RTC__)
// NVRTC compiles no host code. What it sees of functions that check their arguments for the host traps on a device.
template <std::derived_from<error> Exception, class... Parts>
constexpr void check(bool holds, Parts const&...) {
  if (!holds) {
    __trap();
  }
}
#else
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
  if constexpr (std::is_floating_point_v<Number>) {
    constexpr double smallest = 1e-3;  // six places behind the point show little of smaller numbers
    auto const number = static_cast<double>(part);
    if (number != 0 && number > -smallest && number < smallest) {
      char digits[32];
      std::snprintf(digits, sizeof(digits), "%.6g", number);
      text += digits;
      return;
    }
  }
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
#endif

/// Throws `value_error` where a view has elements but no memory. `what` names the view in the message: "keys".
template <class View>
void check_memory(char const* function, char const* what, View const& given) {
  check<value_error>(given.data != nullptr || given.size() == 0, function, ": the ", what, " have no memory but ",
                     given.size(), " elements");
}

/// Throws `shape_error` where elements of a view that is written lie in one place: a dimension, from `first_dimension`
/// on, has a stride of 0.
template <class View>
void check_apart(char const* function, char const* what, View const& given, int first_dimension = 0) {
  bool const has_elements = given.data != nullptr && !given.is_empty();
  for (int dimension = first_dimension; has_elements && dimension < View::rank; ++dimension) {
    check<shape_error>(given.extent(dimension) < 2 || given.stride(dimension) != 0, function, ": dimension ", dimension,
                       " of the ", what, " has ", given.extent(dimension), " elements with a stride of 0");
  }
}

#if !defined(__CUDACC_RTC__)
/// The product of two counts. Throws a `shape_error` that names `function` if one is negative or the product does not
/// fit.
[[nodiscard]] inline std::int64_t checked_multiply(char const* function, std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  bool const overflows = __builtin_mul_overflow(a, b, &product);
  check<shape_error>(!overflows && a >= 0 && b >= 0, function, ": ", a, " times ", b, " is not a size");
  return product;
}

/// The product of three or more counts. Throws a `shape_error` that names `function` if one is negative or the product
/// does not fit.
template <std::convertible_to<std::int64_t>... More>
[[nodiscard]] std::int64_t checked_multiply(char const* function, std::int64_t a, std::int64_t b, std::int64_t c,
                                            More... more) {
  return checked_multiply(function, checked_multiply(function, a, b), c, more...);
}

/// The sum of two counts. Throws a `shape_error` that names `function` if one is negative or the sum does not fit.
[[nodiscard]] inline std::int64_t checked_add(char const* function, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  bool const overflows = __builtin_add_overflow(a, b, &sum);
  check<shape_error>(!overflows && a >= 0 && b >= 0, function, ": ", a, " plus ", b, " is not a size");
  return sum;
}

namespace detail {

/// Replaces `name` in the text by a number.
inline void put_number(std::string& text, char const* name, std::int64_t number) {
  if (std::size_t const at = text.find(name); at != std::string::npos) {
    text.replace(at, std::char_traits<char>::length(name), std::to_string(number));
  }
}

/// The message for `function`'s failed status word. `unit`: what positions count.
inline std::string status_message(status_word word, char const* function, char const* unit) {
  std::string said = describe(word.code(), word.position());
  status_detail const what = word.what();
  if (is_sentence(word.code())) {
    put_number(said, "{position}", word.position());
    put_number(said, "{value}", what.value);
    put_number(said, "{limit}", what.limit);
    return join(function, ": ", said);
  }
  std::string const found = what.is_known() ? join(": it is ", what.value, ", and there are ", what.limit) : "";
  return join(function, ": ", said, " (code ", static_cast<int>(word.code()), ") at ", unit, " ", word.position(),
              found);
}

/// Throws `value_error` or `shape_error` where the caller's values or sizes are at fault, else `corrupt_data`.
[[noreturn]] inline void throw_status(status_word word, std::string const& message) {
  switch (word.code()) {
    case status_code::bad_value:
    case status_code::out_of_range:
    case status_code::other_forward:
    case status_code::repeated_index:
    case status_code::bad_label:
    case status_code::bad_length:
    case status_code::bad_new_tokens:
    case status_code::bad_slot:
    case status_code::bad_page_count:
    case status_code::bad_block:
    case status_code::written_slot:
    case status_code::bad_sequence:
    case status_code::repeated_sequence:
    case status_code::unknown_sequence:
    case status_code::bad_entry:
    case status_code::other_rank:
      throw value_error(message);
    case status_code::capacity_exceeded:
    case status_code::full_tail:
    case status_code::full_sequence:
    case status_code::full_slot:
      throw shape_error(message);
    default:
      if (word.code() >= status_code::first_user_code) {
        throw value_error(message);
      }
      throw corrupt_data(message, word.position());
  }
}

}  // namespace detail

/// Throws the exception that a failed status word stands for: `value_error` or `shape_error` where the caller's values
/// or sizes are at fault, else `corrupt_data`. The message is the code's own sentence if it has one. Otherwise it names
/// what failed, the code and the position, which counts what `unit` says. Both begin with `function`.
inline void throw_if_failed(status_word word, char const* function, char const* unit = "position") {
  if (!word.is_ok()) {
    detail::throw_status(word, detail::status_message(word, function, unit));
  }
}
#endif

}  // namespace v0
}  // namespace tessera
