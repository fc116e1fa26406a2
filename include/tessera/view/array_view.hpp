// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `array_view<T>`: a list of elements, not necessarily next to each other.
///
///     std::vector<float> numbers{1, 2, 3};
///     array_view<float const> values = numbers;     // values.size() == 3, values[1] == 2
#pragma once

#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// A list of elements at equal distances.
template <class T>
using array_view = view<T, 1>;

/// The list that a container or a list view is, with the element type found out.
template <class T>
[[nodiscard]] TESSERA_FN constexpr array_view<T> as_array(array_view<T> const& list) {
  return list;
}
/// The elements of a container as a list; valid as long as they stay where they are.
template <class Container>
requires(!detail::is_view<std::remove_cvref_t<Container>>)
    [[nodiscard]] constexpr auto as_array(Container&& container) {
  return array_view<std::remove_pointer_t<decltype(container.data())>>(container.data(),
                                                                       static_cast<std::int64_t>(container.size()));
}

}  // namespace v0
}  // namespace tessera
