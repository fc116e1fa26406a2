// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `linear_loss_arguments`: checks the arguments of algorithm/loss/linear_loss.hpp. Errors name the function, and show
/// both of the values that do not fit together.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/detail/check_classifier.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The checks of a loss of operands T, whose rows of logits a Reducer runs over.
template <class T, LogitReducer Statistics>
struct linear_loss_arguments {
  /// Throws shape_error where a workspace has fewer bytes than a call needs.
  static void check_room(char const* function, workspace const& space, std::int64_t needed,
                         linear_loss_shape const& shape) {
    space.check_room(function, needed, shape.tokens, " tokens of ", shape.channels, " channels and ", shape.vocabulary,
                     " entries");
  }

  /// Throws shape_error for extents that no call takes. `fewest`: entries that a vocabulary must have.
  static void check_extents(char const* function, linear_loss_shape const& shape, std::int64_t fewest = 1) {
    check<shape_error>(shape.tokens >= 0 && shape.channels >= 0, function, ": there are ", shape.tokens, " tokens of ",
                       shape.channels, " channels but neither must be negative");
    check<shape_error>(shape.tokens <= most_tokens && shape.channels <= 0x7fffffff, function, ": there are ",
                       shape.tokens, " tokens of ", shape.channels, " channels but at most ", most_tokens, " of ",
                       0x7fffffff, " can be");
    check<shape_error>(shape.vocabulary >= fewest && shape.vocabulary <= 0x7fffffff, function, ": the vocabulary has ",
                       shape.vocabulary, " entries but must have ", fewest, " to ", 0x7fffffff);
  }

  /// Throws value_error or shape_error for options that no call with these extents takes.
  static void check_options(char const* function, linear_loss_shape const& shape, linear_loss_options const& options) {
    check<value_error>(options.temperature > 0 && options.temperature < infinity, function, ": the temperature is ",
                       options.temperature, " but must be positive and finite");
    check<value_error>(1.0F / options.temperature < infinity, function, ": the temperature is ", options.temperature,
                       ", whose reciprocal is not finite");
    check<value_error>(!is_nan(options.hidden_threshold) && !is_nan(options.classifier_threshold), function,
                       ": the thresholds of the filter are ", options.hidden_threshold, " and ",
                       options.classifier_threshold, " but must be numbers");
    check<value_error>(options.softcap >= 0 && options.softcap < infinity, function, ": the softcap is ",
                       options.softcap, " but must be finite and not negative");
    check<value_error>(options.smoothing >= 0 && options.smoothing <= 1, function, ": the smoothing is ",
                       options.smoothing, " but must be from 0 to 1");
    check<value_error>(is_finite(options.z_factor), function, ": the factor of the z-loss is ", options.z_factor,
                       " but must be finite");
    check<value_error>(options.smoothing == 0.0F || has_reducer<sum_reducer<float>, Statistics>, function,
                       ": the smoothing is ", options.smoothing, " but the reducer has no sum_reducer<float>");
    check<value_error>(options.sequence >= 0 && options.shift >= 0, function, ": the shift is ", options.shift,
                       " and the length of sequences ", options.sequence, " but neither must be negative");
    check<shape_error>(options.sequence == 0 || shape.tokens % options.sequence == 0, function, ": there are ",
                       shape.tokens, " tokens, which are no whole number of sequences of ", options.sequence);
  }

  /// Throws shape_error or value_error for inputs and options that do not fit together; returns the extents.
  template <class Label, LogitMap Map, class Classifier>
  static linear_loss_shape check_inputs(char const* function, linear_loss_inputs<T, Label, Map, Classifier> const& in,
                                        linear_loss_options const& options, std::int64_t fewest = 1) {
    linear_loss_shape const shape{in.hidden.extent(0), rows_in(in.classifier), in.hidden.extent(1)};
    check_extents(function, shape, fewest);
    check<shape_error>(columns_in(in.classifier) == shape.channels, function, ": the hidden states have ",
                       shape.channels, " channels but the classifier has ", columns_in(in.classifier));
    check<shape_error>(in.labels.size() == shape.tokens, function, ": there are ", in.labels.size(), " labels but ",
                       shape.tokens, " tokens");
    check_memory(function, "hidden states", in.hidden);
    check_classifier(function, in.classifier);
    check_memory(function, "labels", in.labels);
    check_memory(function, "biases", in.bias);
    check<shape_error>(in.bias.data == nullptr || in.bias.size() == shape.vocabulary, function, ": the bias has ",
                       in.bias.size(), " values but the vocabulary has ", shape.vocabulary);
    check_length(function, "weights", in.weights, shape.tokens, "tokens");
    check_length(function, "weights of classes", in.class_weights, shape.vocabulary, "entries of the vocabulary");
    check<value_error>(in.map.steepest() > 0 && in.map.steepest() < infinity, function,
                       ": the map of logits has slopes up to ", in.map.steepest(),
                       " but its steepest() must be positive and finite");
    check_options(function, shape, options);
    return shape;
  }

  /// Throws shape_error or value_error for upstream gradients, gradients and a budget that a backward pass does not
  /// take.
  template <class Gradient>
  static void check_gradients(linear_loss_shape const& shape, linear_loss_options const& options,
                              loss_upstream const& upstream, linear_loss_gradients<Gradient> const& out) {
    std::int64_t const losses = options.reduction == loss_reduction::none ? shape.tokens : 1;
    check_length(back, "upstream gradients of losses", upstream.loss, losses, "losses");
    check_length(back, "upstream gradients of log-sum-exps", upstream.log_sum_exp, shape.tokens, "tokens");
    check_length(back, "upstream gradients of entropies", upstream.entropy, shape.tokens, "tokens");
    check<value_error>(upstream.entropy.data == nullptr || has_reducer<entropy_reducer<float>, Statistics>, back,
                       ": entropies have gradients but the reducer has no entropy_reducer<float>");
    check_memory(back, "gradients of hidden states", out.hidden);
    check_memory(back, "gradients of the classifier", out.classifier);
    check_matrix("hidden states", out.hidden, shape.tokens, shape.channels);
    check_matrix("classifier", out.classifier, shape.vocabulary, shape.channels);
    check_length(back, "gradients of the bias", out.bias, shape.vocabulary, "entries of the vocabulary");
    check_accumulates<Gradient>("hidden", out.accumulate_hidden);
    check_accumulates<Gradient>("classifier", out.accumulate_classifier);
    check_accumulates<Gradient>("bias", out.accumulate_bias);
    check<value_error>(options.workspace_budget >= 0, back, ": the budget of the workspace is ",
                       options.workspace_budget, " bytes but must not be negative");
  }

  /// Throws shape_error or value_error for outputs that do not fit the extents, or that the Reducer does not compute.
  static void check_outputs(linear_loss_shape const& shape, linear_loss_options const& options,
                            linear_loss_outputs const& out) {
    bool const is_reduced = options.reduction != loss_reduction::none;
    check_memory(where, "losses", out.loss);
    check<shape_error>(out.loss.size() == (is_reduced ? 1 : shape.tokens), where, ": the loss has ", out.loss.size(),
                       " elements but needs ", is_reduced ? 1 : shape.tokens);
    check_length(where, "log-sum-exps", out.log_sum_exp, shape.tokens, "tokens");
    check_length(where, "log-probabilities", out.log_probability, shape.tokens, "tokens");
    check_length(where, "entropies", out.entropy, shape.tokens, "tokens");
    check_length(where, "predictions", out.prediction, shape.tokens, "tokens");
    check_length(where, "accuracies", out.accuracy, 1, "results");
    check_length(where, "counts", out.labelled_count, 1, "results");
    check<value_error>(out.entropy.data == nullptr || has_reducer<entropy_reducer<float>, Statistics>, where,
                       ": entropies are asked for but the reducer has no entropy_reducer<float>");
    check<value_error>((out.prediction.data == nullptr && out.accuracy.data == nullptr) ||
                           has_reducer<arg_max_reducer<float>, Statistics>,
                       where, ": predictions are asked for but the reducer has no arg_max_reducer<float>");
  }

  /// Throws value_error where inputs or the workspace lie where the executor's programs do not read them.
  template <class Exec, class Label, LogitMap Map, class Classifier>
  static void check_input_places(Exec const& exec, char const* function,
                                 linear_loss_inputs<T, Label, Map, Classifier> const& in, workspace const& space) {
    check_reach(exec, function, "hidden states", in.hidden, "labels", in.labels, "biases", in.bias, "weights",
                in.weights, "weights of classes", in.class_weights, "bytes of the workspace", space);
    check_classifier_place(exec, function, in.classifier);
    check_reach_of(exec, function, in.map);
  }

  /// The same for outputs.
  template <class Exec>
  static void check_output_places(Exec const& exec, linear_loss_outputs const& out) {
    check_reach(exec, where, "losses", out.loss, "log-sum-exps", out.log_sum_exp, "log-probabilities",
                out.log_probability, "entropies", out.entropy, "predictions", out.prediction, "accuracies",
                out.accuracy, "counts", out.labelled_count);
  }

  /// The same for gradients.
  template <class Exec, class Gradient>
  static void check_gradient_places(Exec const& exec, loss_upstream const& upstream,
                                    linear_loss_gradients<Gradient> const& out) {
    check_reach(exec, back, "upstream gradients of losses", upstream.loss, "upstream gradients of log-sum-exps",
                upstream.log_sum_exp, "upstream gradients of entropies", upstream.entropy);
    check_reach(exec, back, "gradients of hidden states", out.hidden, "gradients of the classifier", out.classifier,
                "gradients of the bias", out.bias);
  }

 private:
  static constexpr char const* where = "linear_loss.forward";
  static constexpr char const* back = "linear_loss.backward";
  static constexpr std::int64_t most_tokens = std::int64_t{1} << 40;

  template <class Gradient>
  static void check_matrix(char const* what, matrix_view<Gradient> matrix, std::int64_t rows, std::int64_t columns) {
    if (matrix.data == nullptr) {
      return;
    }
    bool const is_empty = rows == 0 || columns == 0;
    check<shape_error>(matrix.extent(0) == rows && matrix.extent(1) == columns, back, ": the gradient of the ", what,
                       " is ", matrix.extent(0), " x ", matrix.extent(1), " but must be ", rows, " x ", columns);
    for (int dimension = 0; dimension < 2; ++dimension) {
      check<shape_error>(is_empty || matrix.extent(dimension) < 2 || matrix.stride(dimension) != 0, back,
                         ": dimension ", dimension, " of the gradient of the ", what, " has ", matrix.extent(dimension),
                         " elements with a stride of 0");
    }
  }

  /// Sums of many small gradients would be lost in fewer bits than those of fp32.
  template <class Gradient>
  static void check_accumulates(char const* what, bool accumulates) {
    check<value_error>(std::is_same_v<Gradient, float> || !accumulates, back, ": accumulate_", what,
                       " is true, which needs gradients of 32 bits (float), but they have ", 8 * sizeof(Gradient));
  }

  /// Throws if a list that is not null has another length than `length`, or a stride of 0 where the call writes to it.
  template <class V>
  static void check_length(char const* function, char const* what, array_view<V> list, std::int64_t length,
                           char const* of) {
    check_memory(function, what, list);
    check<shape_error>(list.data == nullptr || list.size() == length, function, ": there are ", list.size(), " ", what,
                       " but ", length, " ", of);
    check<shape_error>(std::is_const_v<V> || list.size() < 2 || list.stride(0) != 0, function, ": the ", what, " have ",
                       list.size(), " elements with a stride of ", 0);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
