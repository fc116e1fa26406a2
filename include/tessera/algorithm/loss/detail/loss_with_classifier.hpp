// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_with_classifier`: what with_classifier, with_teacher_classifier and with_logit_maps make of an algorithm.
/// Algorithms that take sources, or maps in this way, specialize it where they are.
#pragma once

#include <type_traits>

#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/map/identity_logits.hpp>
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
/// `type`: the algorithm with maps of logits.
template <class Loss, LogitMap Map, LogitMap TeacherMap>
struct loss_with_logit_maps;

/// A template argument for a classifier whose logits go through a map.
template <class Rows, LogitMap Map>
struct mapped_rows {};

/// The parts of such an argument, or of a classifier without a map.
template <class Classifier>
struct classifier_parts {
  using rows = Classifier;
  using map = identity_logits;
  template <class Other>
  using with_rows = Other;
};
template <class Rows, LogitMap Map>
struct classifier_parts<mapped_rows<Rows, Map>> {
  using rows = Rows;
  using map = Map;
  template <class Other>
  using with_rows = mapped_rows<Other, Map>;
};
/// The rows of a classifier.
template <class Classifier>
using rows_type = typename classifier_parts<Classifier>::rows;
/// What its logits go through.
template <class Classifier>
using map_type = typename classifier_parts<Classifier>::map;
/// The template argument for rows and a map.
template <class Rows, LogitMap Map>
using rows_with_map = std::conditional_t<leaves_logits<Map>, Rows, mapped_rows<Rows, Map>>;

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
