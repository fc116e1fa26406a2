// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `matrix_view<T>`: rows and columns; `extent(0)` is the number of rows.
///
///     matrix_view<float> m(numbers.data(), {rows, columns});
///     m(i, j) = 0.0f;
///     array_view<float> first_row = m[0];
#pragma once

#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// A matrix of rows x columns.
template <class T>
using matrix_view = view<T, 2>;

}  // namespace v0
}  // namespace tessera
