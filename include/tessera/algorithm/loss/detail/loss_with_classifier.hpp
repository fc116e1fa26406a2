// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_with_classifier`: what with_classifier and with_teacher_classifier make of an algorithm. Algorithms that take
/// sources specialize it where they are.
#pragma once

#include <type_traits>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// `type`: the algorithm with a source in place of its classifier.
template <class Loss, TileSource Source>
struct loss_with_classifier;
/// `type`: the algorithm with a source in place of its teacher's classifier.
template <class Loss, TileSource Source>
struct loss_with_teacher_classifier;

/// Whether a classifier of operands T is a source, whose rows are made when needed, and not a view of a matrix.
template <class T, class Classifier>
inline constexpr bool is_classifier_source = !std::is_same_v<Classifier, matrix_view<T const>>;

/// Whether a classifier has elements of T.
template <class T, class Classifier>
constexpr bool gives_operands() {
  if constexpr (is_classifier_source<T, Classifier>) {
    return std::is_same_v<typename Classifier::value_type, T>;
  } else {
    return true;
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
