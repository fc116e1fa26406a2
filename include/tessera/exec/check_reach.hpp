// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `check_reach`: refuses operands in memory that an executor's programs cannot read, with an error message. A
/// std::vector given to tessera::cuda does not compile, and a view or a buffer of the host's memory is a value_error.
///
///     check_reach(exec, "compressed_weights.encode", "weights", weights);     // and more names and operands, in turns
///
/// Every call of the library asks about all of its operands. Those that only enqueue work can afford it, since a
/// thread remembers the addresses that it found in reach (`reached_addresses`): it asks the CUDA runtime, which takes
/// part of a microsecond, about an address that is new, and spends a few nanoseconds on one that it knows. For
/// executors that read the host's memory nothing is compiled.
///
/// A type that refers to memory, such as a source of weights or a bias, names its views for check_reach_of():
///
///     struct my_source {
///       matrix_view<std::int8_t const> codes;
///       matrix_view<float const> scales;
///
///       template <class Use>
///       void each_view(Use const& use) const { use("codes", codes); use("scales", scales); }
///     };
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>
#include <tessera/view/visit_views.hpp>

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

/// Addresses that a thread has found in reach of a device's programs, in a table of 16 KiB. Of two addresses for the
/// same slot the later one is kept, and the earlier one is asked for again when it is met again.
///
/// Freeing memory removes nothing from the table. If an allocation is freed, or memory of the host is no longer
/// registered, and the host's own memory comes to lie at the very same address, a call with it is not refused; it ends
/// as it would without a check. No call is refused wrongly, since an address out of reach is not remembered.
class reached_addresses {
 public:
  /// Calls ask(), which throws where the device does not reach the address, unless the calling thread has asked before.
  /// The address is not null.
  template <class Ask>
  static void ask_once(void const* first, int device, Ask const& ask) {
    entry& known = of_thread().entries_[slot_of(first, device)];
    if (known.first != first || known.device != device) {
      ask();
      known = {first, device};
    }
  }

 private:
  static constexpr int log2_slots = 10;  ///< enough for the weights and caches of a model of a hundred layers

  struct entry {
    void const* first = nullptr;
    int device = 0;
  };

  [[nodiscard]] static reached_addresses& of_thread() {
    thread_local reached_addresses addresses;
    return addresses;
  }
  [[nodiscard]] static std::size_t slot_of(void const* first, int device) {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio: Fibonacci hashing
    auto const address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(first));
    return static_cast<std::size_t>(((address + static_cast<std::uint64_t>(device)) * odd) >> (64 - log2_slots));
  }

  std::array<entry, std::size_t{1} << log2_slots> entries_{};
};

/// The first byte of an operand; null if it has no elements.
template <class T, int Rank>
[[nodiscard]] inline void const* first_byte(view<T, Rank> const& given) {
  return given.is_empty() ? nullptr : static_cast<void const*>(given.data);
}
[[nodiscard]] inline void const* first_byte(workspace const& space) {
  return space.bytes() == 0 ? nullptr : static_cast<void const*>(space.data());
}
template <class Container>
requires(!is_view<Container>) [[nodiscard]] inline void const* first_byte(Container const& container) {
  return first_byte(as_array(container));
}

}  // namespace detail

/// Throws value_error, or does not compile, where an operand's elements cannot be reached. Messages call them `what`.
/// `more`: names and operands, in turns. An operand is a view of any rank, a workspace, or a container. Null ones, and
/// those without elements, are in reach.
template <class Exec, class Operand, class... More>
inline void check_reach([[maybe_unused]] Exec const& exec, [[maybe_unused]] char const* function,
                        [[maybe_unused]] char const* what, [[maybe_unused]] Operand const& operand,
                        [[maybe_unused]] More const&... more) {
  detail::refuse_host_container<Exec, Operand>();
  if constexpr (detail::has_own_memory<Exec>) {
    if (void const* const first = detail::first_byte(operand)) {
      exec.check_reach(function, what, first);
    }
    if constexpr (sizeof...(More) > 0) {
      check_reach(exec, function, more...);
    }
  }
}

/// check_reach() of the views that an object names by each_view(); nothing for an object without it.
template <class Exec, class Object>
inline void check_reach_of([[maybe_unused]] Exec const& exec, [[maybe_unused]] char const* function,
                           [[maybe_unused]] Object const& object) {
  if constexpr (detail::has_own_memory<Exec>) {
    visit_views(object, [&](char const* what, auto const& operand) { check_reach(exec, function, what, operand); });
  }
}

}  // namespace v0
}  // namespace tessera
