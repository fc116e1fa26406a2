// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of a loss's classifier, which is a view or a TileSource: whether it has the memory that it names, whether a
/// source says that its parts fit together, and whether an executor's programs reach all of it.
#pragma once

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/view/check_parts.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class T>
void check_classifier(char const* function, matrix_view<T> classifier) {
  check_memory(function, "rows of the classifier", classifier);
}
template <TileSource Source>
void check_classifier(char const* function, Source const& classifier, char const* what = "classifier") {
  check_source(function, what, classifier);
}

template <Executor Exec, class T>
void check_classifier_place(Exec const& exec, char const* function, matrix_view<T> classifier) {
  check_reach(exec, function, "rows of the classifier", classifier);
}
template <Executor Exec, TileSource Source>
void check_classifier_place(Exec const& exec, char const* function, Source const& classifier) {
  check_reach_of(exec, function, classifier);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
