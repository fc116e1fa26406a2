// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Makes a view of the list of weights that a caller passes in any container, or says in one sentence why it cannot.
///
///     auto const weights = detail::list_of_weights<bfloat16 const>(exec, "compressed_weights.encode", vector);
#pragma once

#include <type_traits>

#include <tessera/concepts/executor.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A view of the weights in `list`, which is whatever holds them where the executor can read it.
template <class T, Executor Exec, class List>
array_view<T> list_of_weights(Exec const& exec, char const* function, List&& list) {
  constexpr bool fits = std::is_convertible_v<List, array_view<T>>;
  static_assert(fits,
                "tessera: weights are a list of the codec's value_type (bfloat16 of neuzip, T of neuzip_of<T>), "
                "which must not be const where they are written");
  if constexpr (fits) {
    check_reach(exec, function, "weights", list);
    return list;
  } else {
    return {};
  }
}

}  // namespace detail

}  // namespace v0
}  // namespace tessera
