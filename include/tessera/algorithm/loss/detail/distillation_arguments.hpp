// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `distillation_arguments`: checks the arguments of algorithm/loss/linear_distillation.hpp. Errors name the function,
/// and show both of the values that do not fit together.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/detail/check_classifier.hpp>
#include <tessera/algorithm/loss/detail/loss_with_classifier.hpp>
#include <tessera/algorithm/loss/linear_distillation_types.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The checks of a distillation of operands T.
template <class T, Divergence D, class Student, class Teacher>
struct distillation_arguments {
  using inputs = distillation_inputs<T, D, Student, Teacher>;

  /// Throws for extents or options that no call takes. `fewest`: entries that a vocabulary must have.
  static void check_call(char const* function, distillation_shape const& shape, distillation_options const& options,
                         std::int64_t fewest = 1) {
    check<shape_error>(
        shape.tokens >= 0 && shape.vocabulary >= fewest && shape.channels > 0 && shape.teacher_channels > 0, function,
        ": there are ", shape.tokens, " tokens, ", shape.vocabulary, " entries, ", shape.channels, " channels and ",
        shape.teacher_channels, " of the teacher, but tokens must not be negative, entries not below ", fewest,
        " and the others not below 1");
    check<value_error>(options.temperature > 0.0F && options.temperature < infinity, function, ": the temperature is ",
                       options.temperature, " but must be positive and finite");
    check<value_error>(1.0F / options.temperature < infinity, function, ": the temperature is ", options.temperature,
                       ", whose reciprocal is not finite");
    check<value_error>(options.softcap >= 0.0F && options.softcap < infinity, function, ": the softcap is ",
                       options.softcap, " but must be finite and not negative");
    check<value_error>(options.teacher_softcap >= 0.0F && options.teacher_softcap < infinity, function,
                       ": the teacher's softcap is ", options.teacher_softcap, " but must be finite and not negative");
    check<value_error>(options.workspace_budget >= 0, function, ": the budget of the workspace is ",
                       options.workspace_budget, " bytes but must not be negative");
  }

  /// Throws for inputs that do not fit together, or lie where programs do not read them; returns the extents.
  template <class Exec>
  static distillation_shape check_inputs(Exec const& exec, char const* function, inputs const& in,
                                         distillation_options const& options, workspace const& space,
                                         std::int64_t fewest = 1) {
    distillation_shape const shape{in.hidden.extent(0), rows_in(in.classifier), in.hidden.extent(1),
                                   in.teacher_hidden.extent(1)};
    check_call(function, shape, options, fewest);
    std::int64_t const channels = columns_in(in.classifier);
    std::int64_t const of_teacher = columns_in(in.teacher_classifier);
    std::int64_t const rows_of_teacher = rows_in(in.teacher_classifier);
    check<shape_error>(channels == shape.channels, function, ": the hidden states have ", shape.channels,
                       " channels but the classifier has ", channels);
    check<shape_error>(of_teacher == shape.teacher_channels, function, ": the teacher's hidden states have ",
                       shape.teacher_channels, " channels but its classifier has ", of_teacher);
    check<shape_error>(in.teacher_hidden.extent(0) == shape.tokens, function, ": the student has ", shape.tokens,
                       " tokens but the teacher has ", in.teacher_hidden.extent(0));
    check<shape_error>(rows_of_teacher == shape.vocabulary, function, ": the student has ", shape.vocabulary,
                       " entries but the teacher has ", rows_of_teacher);
    check_memory(function, "hidden states", in.hidden);
    check_memory(function, "the teacher's hidden states", in.teacher_hidden);
    check_classifier(function, in.classifier);
    if constexpr (teacher_has_source) {
      check_classifier(function, in.teacher_classifier, "teacher's classifier");
    } else {
      check_memory(function, "rows of the teacher's classifier", in.teacher_classifier);
    }
    check_list(function, "weights", in.weights, shape.tokens);
    check_list(function, "biases", in.bias, shape.vocabulary);
    check_list(function, "biases of the teacher", in.teacher_bias, shape.vocabulary);
    check_map(function, "map of logits", in.map);
    check_map(function, "teacher's map of logits", in.teacher_map);
    if constexpr (requires { in.divergence.check_values(function); }) {
      in.divergence.check_values(function);
    }
    check_reach(exec, function, "hidden states", in.hidden, "the teacher's hidden states", in.teacher_hidden, "weights",
                in.weights, "biases", in.bias, "biases of the teacher", in.teacher_bias, "bytes of the workspace",
                space);
    check_classifier_place(exec, function, in.classifier);
    check_reach_of(exec, function, in.map);
    check_reach_of(exec, function, in.teacher_map);
    if constexpr (teacher_has_source) {
      check_reach_of(exec, function, in.teacher_classifier);
    } else {
      check_reach(exec, function, "rows of the teacher's classifier", in.teacher_classifier);
    }
    return shape;
  }
  /// Throws for upstream gradients and gradients that a backward pass does not take.
  template <class Exec, class Gradient>
  static void check_gradients(Exec const& exec, distillation_shape const& shape, distillation_options const& options,
                              array_view<float const> upstream, linear_loss_gradients<Gradient> const& out) {
    check_list(back, "upstream gradients", upstream, options.reduction == loss_reduction::none ? shape.tokens : 1);
    check_matrix("hidden states", out.hidden, shape.tokens, shape.channels);
    check_matrix("classifier", out.classifier, shape.vocabulary, shape.channels);
    check_list(back, "gradients of the bias", out.bias, shape.vocabulary);
    check<shape_error>(out.bias.size() < 2 || out.bias.stride(0) != 0, back, ": the gradients of the bias have ",
                       out.bias.size(), " elements with a stride of ", 0);
    constexpr bool is_float = std::is_same_v<Gradient, float>;
    check<value_error>(is_float || !(out.accumulate_hidden || out.accumulate_classifier || out.accumulate_bias), back,
                       ": gradients are to be accumulated, which needs 32 bits (float), but they have ",
                       8 * sizeof(Gradient));
    check_reach(exec, back, "upstream gradients", upstream, "gradients of hidden states", out.hidden,
                "gradients of the classifier", out.classifier, "gradients of the bias", out.bias);
  }
  /// Throws for a list that is there and has another length.
  template <class V>
  static void check_list(char const* function, char const* what, array_view<V> list, std::int64_t needed) {
    check_memory(function, what, list);
    check<shape_error>(list.data == nullptr || list.size() == needed, function, ": there are ", list.size(), " ", what,
                       " but there must be ", needed);
  }

 private:
  static constexpr char const* back = "linear_distillation.backward";
  static constexpr bool teacher_has_source = is_classifier_source<T, rows_type<Teacher>>;

  template <LogitMap Map>
  static void check_map(char const* function, char const* what, Map const& map) {
    check<value_error>(map.steepest() > 0 && map.steepest() < infinity, function, ": the ", what, " has slopes up to ",
                       map.steepest(), " but its steepest() must be positive and finite");
  }

  template <class Gradient>
  static void check_matrix(char const* what, matrix_view<Gradient> matrix, std::int64_t rows, std::int64_t columns) {
    check_memory(back, what, matrix);
    if (matrix.data != nullptr) {
      check<shape_error>(matrix.extent(0) == rows && matrix.extent(1) == columns, back, ": the gradient of the ", what,
                         " is ", matrix.extent(0), " x ", matrix.extent(1), " but must be ", rows, " x ", columns);
      check_apart(back, what, matrix);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
