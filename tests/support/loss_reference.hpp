// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss of a linear classifier and its gradients by the formulas, in double, with all logits in memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/testing/generators.hpp>

#include "support/double_rows.hpp"
#include "support/gemm_reference.hpp"

namespace tessera_test {

/// A map of logits and its derivative in double, functions of a logit, its token and its entry; null: none.
struct reference_map {
  std::function<double(double, std::int64_t, std::int64_t)> value;
  std::function<double(double, std::int64_t, std::int64_t)> slope;
};

/// Inputs of a loss, in vectors.
template <class T, class Label = std::int64_t>
struct loss_problem {
  std::int64_t tokens;
  std::int64_t vocabulary;
  std::int64_t channels;
  std::vector<T> hidden;
  std::vector<T> classifier;
  std::vector<Label> labels;
  std::vector<T> bias;
  std::vector<float> weights;
  tessera::linear_loss_options options;
  reference_map map = {};  ///< what the reference does to logits
  std::vector<float> class_weights = {};

  /// The inputs, with the Map of the loss that is given them.
  template <class Map = tessera::identity_logits>
  tessera::linear_loss_inputs<T, Label, Map> inputs(Map const& of_loss = {}) const {
    return {{hidden.data(), {tokens, channels}},
            {classifier.data(), {vocabulary, channels}},
            labels,
            bias,
            weights,
            of_loss,
            class_weights};
  }
};

/// Makes a problem with logits of a spread of about 2 and every fifth token ignored, with or without a bias and
/// weights.
template <class T, class Label = std::int64_t>
loss_problem<T, Label> make_loss_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels,
                                         bool with_all = false) {
  loss_problem<T, Label> problem{tokens, vocabulary, channels, {}, {}, {}, {}, {}, {}};
  double const sigma = 2.0 / std::sqrt(static_cast<double>(channels > 0 ? channels : 1));
  for (std::int64_t i = 0; i < tokens * channels; ++i) {
    problem.hidden.push_back(tessera::testing::sample<T>(tessera::testing::gauss{}, 1, static_cast<std::uint64_t>(i)));
  }
  for (std::int64_t i = 0; i < vocabulary * channels; ++i) {
    problem.classifier.push_back(
        tessera::testing::sample<T>(tessera::testing::gauss{.sigma = sigma}, 2, static_cast<std::uint64_t>(i)));
  }
  for (std::int64_t i = 0; i < tokens; ++i) {
    std::uint64_t const word = tessera::testing::hash(3, static_cast<std::uint64_t>(i));
    problem.labels.push_back(word % 5 == 0 ? Label{-100}
                                           : static_cast<Label>((word >> 8) % static_cast<std::uint64_t>(vocabulary)));
  }
  if (with_all) {
    problem.bias = operand_samples<T>(vocabulary, 4);
    for (std::int64_t i = 0; i < tokens; ++i) {
      problem.weights.push_back(tessera::testing::uniform{0.0, 2.0}.value(5, static_cast<std::uint64_t>(i)));
    }
  }
  return problem;
}

/// Gives every entry of the vocabulary a weight, and some of them 0.
template <class T, class Label>
void weigh_classes(loss_problem<T, Label>& problem) {
  for (std::int64_t entry = 0; entry < problem.vocabulary; ++entry) {
    float const weight = tessera::testing::uniform{0.0, 3.0}.value(6, static_cast<std::uint64_t>(entry));
    problem.class_weights.push_back(entry % 7 == 3 ? 0.0F : weight);
  }
}

/// The reference values of a token; `label` is -1 for none.
struct token_reference {
  std::int64_t label = -1;
  double loss = 0;
  double log_sum_exp = 0;
  double log_probability = 0;
  double entropy = 0;
  std::int32_t prediction = -1;
  double weight = 0;
  std::vector<double> scaled = {};  ///< by entries: what the options make of sums of products
  std::vector<double> logits = {};  ///< by entries
};

struct loss_reference {
  std::vector<token_reference> tokens;
  double total = 0;
  double weight = 0;
  std::int64_t count = 0;
  double correct = 0;
};

/// The hidden states and the classifier of a problem as doubles.
struct loss_operands {
  std::vector<double> hidden;
  std::vector<double> classifier;

  template <class T, class Label>
  explicit loss_operands(loss_problem<T, Label> const& p)
      : hidden(doubles_of(p.hidden)), classifier(doubles_of(p.classifier)) {}
};

/// What the options make of a sum of products.
template <class T, class Label>
double reference_scaled(loss_problem<T, Label> const& p, loss_operands const& of, std::int64_t token,
                        std::int64_t entry) {
  double const sum =
      row_product(of.hidden.data() + token * p.channels, of.classifier.data() + entry * p.channels, p.channels) +
      (p.bias.empty() ? 0.0 : as_double(p.bias[static_cast<std::size_t>(entry)]));
  double const cap = static_cast<double>(p.options.softcap);
  return (cap > 0 ? cap * std::tanh(sum / cap) : sum) / static_cast<double>(p.options.temperature);
}

/// What the map makes of that.
template <class T, class Label>
double reference_mapped(loss_problem<T, Label> const& p, double scaled, std::int64_t token, std::int64_t entry) {
  bool const is_mapped = p.map.value != nullptr && scaled != -std::numeric_limits<double>::infinity();
  return is_mapped ? p.map.value(scaled, token, entry) : scaled;
}

template <class T, class Label>
std::int64_t reference_label(loss_problem<T, Label> const& p, std::int64_t token) {
  std::int64_t const sequence = p.options.sequence > 0 ? p.options.sequence : p.tokens;
  if (token % sequence + p.options.shift >= sequence) {
    return -1;
  }
  auto const label = static_cast<std::int64_t>(p.labels[static_cast<std::size_t>(token + p.options.shift)]);
  return label == p.options.ignore_index ? -1 : label;
}

template <class T, class Label>
token_reference reference_token(loss_problem<T, Label> const& p, loss_operands const& of, std::int64_t token) {
  token_reference result;
  result.label = reference_label(p, token);
  if (result.label < 0) {
    return result;
  }
  std::vector<double>& logits = result.logits;
  logits.reserve(static_cast<std::size_t>(p.vocabulary));
  result.scaled.reserve(static_cast<std::size_t>(p.vocabulary));
  double largest = -std::numeric_limits<double>::infinity();
  double mean = 0;
  for (std::int64_t entry = 0; entry < p.vocabulary; ++entry) {
    result.scaled.push_back(reference_scaled(p, of, token, entry));
    logits.push_back(reference_mapped(p, result.scaled.back(), token, entry));
    mean += logits.back() / static_cast<double>(p.vocabulary);
    if (logits.back() > largest) {
      largest = logits.back();
      result.prediction = static_cast<std::int32_t>(entry);
    }
  }
  double sum = 0;
  for (double const logit : logits) {
    sum += std::exp(logit - largest);
  }
  double const lse = largest + std::log(sum);
  for (double const logit : logits) {
    result.entropy += logit == -std::numeric_limits<double>::infinity() ? 0.0 : std::exp(logit - lse) * (lse - logit);
  }
  double const smoothing = static_cast<double>(p.options.smoothing);
  double const of_label = logits[static_cast<std::size_t>(result.label)];
  result.weight = p.weights.empty() ? 1.0 : static_cast<double>(p.weights[static_cast<std::size_t>(token)]);
  result.weight *=
      p.class_weights.empty() ? 1.0 : static_cast<double>(p.class_weights[static_cast<std::size_t>(result.label)]);
  result.log_sum_exp = lse;
  result.log_probability = of_label - lse;
  result.loss = lse - (1 - smoothing) * of_label + static_cast<double>(p.options.z_factor) * lse * lse;
  result.loss = result.weight * (smoothing > 0 ? result.loss - smoothing * mean : result.loss);
  return result;
}

template <class T, class Label>
loss_reference reference_loss(loss_problem<T, Label> const& p, loss_operands const& of) {
  loss_reference result;
  for (std::int64_t token = 0; token < p.tokens; ++token) {
    result.tokens.push_back(reference_token(p, of, token));
    token_reference const& last = result.tokens.back();
    result.total += last.loss;
    result.weight += last.weight;
    result.count += last.label >= 0 ? 1 : 0;
    result.correct += last.label >= 0 && last.label == last.prediction ? 1 : 0;
  }
  if (p.options.reduction == tessera::loss_reduction::mean) {
    result.total = result.weight != 0 ? result.total / result.weight : 0.0;
  }
  return result;
}

template <class T, class Label>
loss_reference reference_loss(loss_problem<T, Label> const& p) {
  return reference_loss(p, loss_operands(p));
}

/// Results of a forward pass, in vectors.
struct loss_results {
  std::vector<float> loss;
  std::vector<float> log_sum_exp;
  std::vector<float> log_probability;
  std::vector<float> entropy;
  std::vector<std::int32_t> prediction;
  std::vector<float> accuracy = {-77.0F};
  std::vector<std::int64_t> count = {-77};

  explicit loss_results(std::int64_t tokens, tessera::loss_reduction reduction = tessera::loss_reduction::mean)
      : loss(reduction == tessera::loss_reduction::none ? static_cast<std::size_t>(tokens) : 1, -77.0F),
        log_sum_exp(static_cast<std::size_t>(tokens), -77.0F),
        log_probability(log_sum_exp),
        entropy(log_sum_exp),
        prediction(static_cast<std::size_t>(tokens), -77) {}

  /// The outputs that the reducer can compute.
  template <class Reducer>
  tessera::linear_loss_outputs outputs() {
    tessera::linear_loss_outputs out{.loss = loss, .log_sum_exp = log_sum_exp, .log_probability = log_probability};
    out.labelled_count = count;
    if constexpr (tessera::has_reducer<tessera::entropy_reducer<float>, Reducer>) {
      out.entropy = entropy;
    }
    if constexpr (tessera::has_reducer<tessera::arg_max_reducer<float>, Reducer>) {
      out.prediction = prediction;
      out.accuracy = accuracy;
    }
    return out;
  }
};

/// Runs the forward pass with its own workspace.
template <class Loss, class Reducer, class Executor, class T, class Label, class Map = tessera::identity_logits>
loss_results run_loss(Executor const& exec, loss_problem<T, Label> const& p, Map const& map = {}) {
  loss_results results(p.tokens, p.options.reduction);
  auto const plan = Loss::plan_forward(exec, {p.tokens, p.vocabulary, p.channels});
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  Loss::forward(exec, p.inputs(map), p.options, results.outputs<Reducer>(), tessera::workspace(plan, memory));
  return results;
}

}  // namespace tessera_test
