// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What communicators share: checks of arguments, and the arithmetic of reductions on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The name of what a list's elements are: reductions need one of the types, other calls the bytes alone.
template <class T>
constexpr char const* element_name() {
  using element = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<element, float>) {
    return "float";
  } else if constexpr (std::is_same_v<element, double>) {
    return "double";
  } else if constexpr (std::is_same_v<element, std::int32_t>) {
    return "int32";
  } else if constexpr (std::is_same_v<element, std::int64_t>) {
    return "int64";
  } else if constexpr (std::is_same_v<element, bfloat16>) {
    return "bfloat16";
  } else if constexpr (std::is_same_v<element, float16>) {
    return "float16";
  } else {
    return "bytes";
  }
}

/// Whether ranks can reduce elements of this type.
template <class T>
inline constexpr bool is_reduced_by_ranks =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int32_t> ||
    std::is_same_v<T, std::int64_t> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// Throws for lists that are not contiguous or, unless nothing runs, have no memory.
template <class T>
void check_communicated(char const* function, char const* what, array_view<T> const& list, bool is_dry = false) {
  static_assert(std::is_trivially_copyable_v<T>, "tessera: ranks exchange elements of trivially copyable types");
  check<shape_error>(list.is_contiguous(), function, ": the ", what, " has a stride of ", list.stride(0),
                     " but must have a stride of 1");
  check<shape_error>(list.size() >= 0, function, ": the ", what, " has ", list.size(), " elements");
  check<value_error>(list.data != nullptr || list.size() == 0 || is_dry, function, ": the ", what,
                     " has no memory but ", list.size(), " elements");
}

/// Throws for lists that cannot be a rank's part and that of all ranks.
template <class Part, class Whole>
void check_parts(char const* function, array_view<Part> const& part, char const* part_name,
                 array_view<Whole> const& whole, int ranks) {
  std::int64_t const needed = checked_multiply(function, part.size(), ranks);
  check<shape_error>(whole.size() == needed, function, ": the ", part_name, " has ", part.size(),
                     " elements for each of ", ranks, " ranks, which is ", needed, ", but the list for all has ",
                     whole.size());
}

/// Throws unless the two lists of all_reduce have one size.
template <class Source, class Target>
void check_same_size(char const* function, array_view<Source> const& source, array_view<Target> const& target) {
  check<shape_error>(source.size() == target.size(), function, ": the source has ", source.size(),
                     " elements but the target has ", target.size());
}

/// Throws for a rank that is not there, and for the own rank outside of grouped().
inline void check_peer(char const* function, int peer, int rank, int ranks, bool is_grouped) {
  check<value_error>(peer >= 0 && peer < ranks, function, ": the other rank is ", peer, " but there are ", ranks);
  check<value_error>(peer != rank || is_grouped, function, ": rank ", rank, " exchanges with rank ", peer,
                     ", itself, which it can in grouped() only");
}

/// Throws for a number that is none of the reductions.
inline void check_reduction(char const* function, rank_reduction reduction) {
  check<value_error>(reduction <= rank_reduction::minimum, function, ": the reduction is ", static_cast<int>(reduction),
                     " but the last one is ", static_cast<int>(rank_reduction::minimum));
}

/// The bytes of a list.
template <class T>
array_view<std::byte const> bytes_of(array_view<T> const& list) {
  return {reinterpret_cast<std::byte const*>(list.data), list.size() * static_cast<std::int64_t>(sizeof(T))};
}
template <class T>
array_view<std::byte> writable_bytes_of(array_view<T> const& list) {
  return {reinterpret_cast<std::byte*>(list.data), list.size() * static_cast<std::int64_t>(sizeof(T))};
}

/// The number that elements are reduced as.
template <class T>
auto as_number(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return load(value);
  }
}

/// One step of a reduction: what `sum` and the next rank's number make.
template <class Number>
Number reduce_two(rank_reduction reduction, Number sum, Number next) {
  if (reduction == rank_reduction::sum) {
    if constexpr (std::is_integral_v<Number>) {
      using unsigned_number = std::make_unsigned_t<Number>;
      return static_cast<Number>(static_cast<unsigned_number>(sum) + static_cast<unsigned_number>(next));
    } else {
      return sum + next;
    }
  }
  if constexpr (std::is_floating_point_v<Number>) {
    if (sum != sum || next != next) {
      return std::numeric_limits<Number>::quiet_NaN();
    }
  }
  bool const takes_next = reduction == rank_reduction::maximum ? next > sum : next < sum;
  return takes_next ? next : sum;
}

/// Reduces `count` elements from the `first` on of `ranks` lists, in rank order; the target begins with the first one.
template <class T>
void reduce_in_rank_order(rank_reduction reduction, void const* const* sources, int ranks, std::int64_t first,
                          std::int64_t count, void* target) {
  auto* const to = static_cast<T*>(target);
  for (std::int64_t i = 0; i < count; ++i) {
    auto sum = as_number(static_cast<T const*>(sources[0])[first + i]);
    for (int rank = 1; rank < ranks; ++rank) {
      sum = reduce_two(reduction, sum, as_number(static_cast<T const*>(sources[rank])[first + i]));
    }
    if constexpr (std::is_arithmetic_v<T>) {
      to[i] = sum;
    } else {
      to[i] = store<T>(sum);
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
