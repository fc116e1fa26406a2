// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `refusal`: the reason why a program does not take a call, or none if it does.
///
///     struct my_program {
///       static refusal refuses(my_call const& call) {
///         return first_of(unless(call.rows > 0, "there are no rows"),
///                         unless(call.stride == 1, "the stride of columns", call.stride, "1"));
///       }
///     };
///     refusal const why = my_program::refuses(call);
///     if (why) { std::puts(why.text().c_str()); }           // the stride of columns is 64 but must be 1
///
/// Making a refusal costs a few comparisons and stores; only text() allocates.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {
inline namespace v0 {

class refusal {
 public:
  /// No reason: the call is taken.
  constexpr refusal() = default;
  /// A reason that is a whole sentence without a full stop.
  constexpr explicit refusal(char const* sentence) : subject_(sentence) {}
  /// A reason about a number: `subject` is `found` but must be `needed`.
  constexpr refusal(char const* subject, std::int64_t found, char const* needed)
      : subject_(subject), needed_(needed), found_(found) {}

  /// Whether there is a reason.
  [[nodiscard]] constexpr explicit operator bool() const { return subject_ != nullptr; }
  /// The reason in words; empty if there is none.
  [[nodiscard]] std::string text() const {
    if (subject_ == nullptr) {
      return {};
    }
    std::string const subject = subject_;
    return needed_ == nullptr ? subject : subject + " is " + std::to_string(found_) + " but must be " + needed_;
  }

 private:
  char const* subject_ = nullptr;
  char const* needed_ = nullptr;
  std::int64_t found_ = 0;
};

/// No refusal if `holds`, else one with this sentence.
[[nodiscard]] constexpr refusal unless(bool holds, char const* sentence) {
  return holds ? refusal{} : refusal{sentence};
}
/// No refusal if `holds`, else one that says: `subject` is `found` but must be `needed`.
[[nodiscard]] constexpr refusal unless(bool holds, char const* subject, std::int64_t found, char const* needed) {
  return holds ? refusal{} : refusal{subject, found, needed};
}

/// The first of some refusals that has a reason; none if none has.
template <class... More>
[[nodiscard]] constexpr refusal first_of(refusal const& first, More const&... more) {
  if constexpr (sizeof...(More) > 0) {
    return first ? first : first_of(more...);
  } else {
    return first;
  }
}

}  // namespace v0
}  // namespace tessera
