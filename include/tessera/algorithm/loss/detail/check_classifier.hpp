// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of a loss's classifier, which is a view or a TileSource: whether it has the memory that it names, whether a
/// quantizer's parameters are as many as its codes need, and whether an executor's programs reach all of it.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/visit_views.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Throws shape_error unless there is a set of parameters for each group of codes, or for the whole tensor.
template <Quantizer Q, Scalar Value>
void check_parameters(char const* function, char const* what, dequantized<Q, Value> const& codes) {
  if constexpr (!std::is_empty_v<typename Q::params_type>) {
    constexpr bool is_whole = Q::group == whole_tensor;
    std::int64_t const rows = is_whole ? 1 : codes.rows();
    std::int64_t const groups = is_whole ? 1 : divide_up(codes.columns(), std::int64_t{max(Q::group, 1)});
    check<shape_error>(codes.params.extent(0) == rows && codes.params.extent(1) == groups, function,
                       ": the parameters of the ", what, "'s codes are ", codes.params.extent(0), " x ",
                       codes.params.extent(1), " but must be ", rows, " x ", groups);
  }
}
/// Other sources have no parameters that are known here.
inline void check_parameters(char const*, char const*, ...) {}

template <class T>
void check_classifier(char const* function, matrix_view<T> classifier) {
  check_memory(function, "rows of the classifier", classifier);
}
template <TileSource Source>
void check_classifier(char const* function, Source const& classifier, char const* what = "classifier") {
  check<shape_error>(classifier.rows() >= 0 && classifier.columns() >= 0, function, ": the ", what, " is ",
                     classifier.rows(), " x ", classifier.columns(), " but neither extent must be negative");
  check_parameters(function, what, classifier);
  visit_views(classifier, [&](char const* of_view, auto const& view) { check_memory(function, of_view, view); });
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
