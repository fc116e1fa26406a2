// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `array_view<T>`: a list of elements, not necessarily next to each other.
///
///     std::vector<float> numbers{1, 2, 3};
///     array_view<float const> values = numbers;     // values.size() == 3, values[1] == 2
#pragma once

#include "tessera/view/view.hpp"

namespace tessera {
inline namespace v0 {

template <class T>
using array_view = view<T, 1>;

}  // namespace v0
}  // namespace tessera
