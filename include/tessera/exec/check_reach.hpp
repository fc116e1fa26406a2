// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `check_reach`: refuses a list in memory that an executor's programs cannot read, with an error message. A
/// std::vector given to tessera::cuda does not compile, and a view or a buffer of the host's memory is a value_error.
///
///     check_reach(exec, "compressed_weights.encode", "weights", weights);
///
/// It asks the CUDA runtime, so it is called only in functions that wait, and not in those that only enqueue work.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class List>
inline constexpr bool is_array = false;
template <class T, std::size_t Size>
inline constexpr bool is_array<std::array<T, Size>> = true;

/// Containers whose elements can only be in the host's memory: with std::allocator, or with elements in themselves.
template <class List>
inline constexpr bool is_host_container = is_array<List> || requires {
  requires std::is_same_v<typename List::allocator_type, std::allocator<typename List::value_type>>;
};

/// Whether an executor's programs may not reach the host's memory; such an executor has check_reach().
template <class Exec>
inline constexpr bool has_own_memory = requires(Exec const& exec, char const* text, void const* first) {
  exec.check_reach(text, text, first);
};

/// Does not compile for a container in the host's memory and an executor that has memory of its own.
template <class Exec, class List>
constexpr void refuse_host_container() {
  static_assert(!has_own_memory<Exec> || !is_host_container<std::remove_cvref_t<List>>,
                "tessera: programs of this executor do not read a std::vector or std::array, which lies in the host's "
                "memory: copy it to a buffer<T>(exec, size) by exec.copy()");
}

}  // namespace detail

/// Throws value_error, or does not compile, where the list's elements cannot be reached. Messages call them `what`.
template <class Exec, class List>
inline void check_reach([[maybe_unused]] Exec const& exec, [[maybe_unused]] char const* function,
                        [[maybe_unused]] char const* what, [[maybe_unused]] List const& list) {
  detail::refuse_host_container<Exec, List>();
  if constexpr (detail::has_own_memory<Exec>) {
    auto const elements = as_array(list);
    if (!elements.is_empty()) {
      exec.check_reach(function, what, static_cast<void const*>(elements.data));
    }
  }
}

}  // namespace v0
}  // namespace tessera
