// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss of a linear classifier with soft targets, and its gradients, by the formulas in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include <tessera/algorithm/loss/soft_target_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/testing/generators.hpp>

#include "support/loss_gradient_reference.hpp"

namespace tessera_test {

/// A problem whose labels are not used, and its targets.
template <class T, class Entry = std::int32_t>
struct target_problem {
  loss_problem<T> base;
  std::int64_t k;
  std::vector<Entry> entries;
  std::vector<float> entry_weights;

  tessera::soft_target_shape shape() const { return {base.tokens, base.vocabulary, base.channels, k}; }
  /// The inputs, with the Map of the loss that is given them.
  template <class Map = tessera::identity_logits>
  tessera::soft_target_inputs<T, Entry, Map> inputs(Map const& map = {}) const {
    return {{base.hidden.data(), {base.tokens, base.channels}},
            {base.classifier.data(), {base.vocabulary, base.channels}},
            {entries.data(), {base.tokens, k}},
            {entry_weights.data(), {base.tokens, k}},
            base.bias,
            base.weights,
            map};
  }
};

/// Makes a problem in which one entry in six is none, one in nine has no weight, every seventh token has no entry, and
/// some tokens have an entry several times. `lowest`: the least weight, which may be negative.
template <class T, class Entry = std::int32_t>
target_problem<T, Entry> make_target_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels,
                                             std::int64_t k, bool with_all = false, double lowest = 0.0) {
  target_problem<T, Entry> made{make_loss_problem<T>(tokens, vocabulary, channels, with_all), k, {}, {}};
  for (std::int64_t i = 0; i < tokens * k; ++i) {
    std::uint64_t const word = tessera::testing::hash(61, static_cast<std::uint64_t>(i));
    bool const is_again = i % k > 0 && word % 5 == 0;
    auto const entry = static_cast<Entry>((word >> 8) % static_cast<std::uint64_t>(vocabulary));
    bool const is_none = word % 6 == 1 || i / k % 7 == 3;
    made.entries.push_back(is_none    ? static_cast<Entry>(word % 4 < 2 ? -1 : -100)
                           : is_again ? made.entries.back()
                                      : entry);
    float const weight = tessera::testing::uniform{lowest, 0.6}.value(62, static_cast<std::uint64_t>(i));
    made.entry_weights.push_back(word % 9 == 2 ? 0.0F : weight);
  }
  return made;
}

/// The reference values of a token, and the weights that its targets give to entries; no logits if it has no target.
struct target_token {
  token_reference of;
  bool counts = false;  ///< whether it has an entry
  double weight = 0;
  double mass = 0;                  ///< the sum of its entries' weights
  std::vector<double> wanted = {};  ///< by entries
};

template <class T, class Entry>
target_token reference_target_token(target_problem<T, Entry> const& p, loss_problem<T>& one, loss_operands const& of,
                                    std::int64_t token) {
  target_token result;
  result.wanted.assign(static_cast<std::size_t>(p.base.vocabulary), 0.0);
  double heaviest = -std::numeric_limits<double>::infinity();
  std::int64_t label = -1;
  for (std::int64_t place = 0; place < p.k; ++place) {
    auto const i = static_cast<std::size_t>(token * p.k + place);
    auto const entry = static_cast<std::int64_t>(p.entries[i]);
    auto const weight = static_cast<double>(p.entry_weights[i]);
    if (entry < 0 || entry == p.base.options.ignore_index) {
      continue;
    }
    bool const is_heavier = weight != 0 && weight > heaviest;
    label = label < 0 || is_heavier ? entry : label;
    heaviest = is_heavier ? weight : heaviest;
    result.counts = true;
    result.mass += weight;
    result.wanted[static_cast<std::size_t>(entry)] += weight;
  }
  if (!result.counts) {
    return result;
  }
  one.labels[static_cast<std::size_t>(token)] = label;
  result.of = reference_token(one, of, token);
  token_reference& r = result.of;
  result.weight = p.base.weights.empty() ? 1.0 : static_cast<double>(p.base.weights[static_cast<std::size_t>(token)]);
  double mean = 0;
  r.log_probability = 0;
  r.loss = 0;
  auto const smoothing = static_cast<double>(p.base.options.smoothing);
  for (std::size_t entry = 0; entry < r.logits.size(); ++entry) {
    mean += r.logits[entry] / static_cast<double>(p.base.vocabulary);
    r.log_probability += result.wanted[entry] == 0 ? 0 : result.wanted[entry] * (r.logits[entry] - r.log_sum_exp);
  }
  r.loss = -(1 - smoothing) * r.log_probability +
           result.mass * static_cast<double>(p.base.options.z_factor) * r.log_sum_exp * r.log_sum_exp;
  r.loss += smoothing == 0 ? 0 : smoothing * result.mass * (r.log_sum_exp - mean);
  r.loss *= result.weight;
  return result;
}

struct target_reference {
  std::vector<target_token> tokens;
  double total = 0;
  double weight = 0;
  std::int64_t count = 0;
  double correct = 0;
  gradient_reference gradient;
};

/// The gradient by a sum of products.
template <class T, class Entry>
double reference_target_gradient(target_problem<T, Entry> const& p, target_token const& t, std::int64_t token,
                                 std::int64_t entry, double by_loss, upstream_samples const& upstream) {
  auto const i = static_cast<std::size_t>(token);
  auto const j = static_cast<std::size_t>(entry);
  auto const& options = p.base.options;
  auto const smoothing = static_cast<double>(options.smoothing);
  auto const temperature = static_cast<double>(options.temperature);
  auto const cap = static_cast<double>(options.softcap);
  double const by_lse = (upstream.log_sum_exp.empty() ? 0.0 : upstream.log_sum_exp[i]) +
                        by_loss * t.mass * 2 * static_cast<double>(options.z_factor) * t.of.log_sum_exp;
  double const by_entropy = upstream.entropy.empty() ? 0.0 : upstream.entropy[i];
  double const log_softmax = t.of.logits[j] - t.of.log_sum_exp;
  double const softmax = std::exp(log_softmax);
  double const wanted = smoothing * t.mass / static_cast<double>(p.base.vocabulary) + (1 - smoothing) * t.wanted[j];
  double const information = softmax == 0 ? 0.0 : softmax * (log_softmax + t.of.entropy);
  double const scaled = t.of.scaled[j];
  bool const is_mapped = p.base.map.slope != nullptr && scaled != -std::numeric_limits<double>::infinity();
  double const slope = (cap > 0 ? 1 - std::pow(scaled * temperature / cap, 2) : 1.0) / temperature *
                       (is_mapped ? p.base.map.slope(scaled, token, entry) : 1.0);
  return slope * (by_loss * (t.mass * softmax - wanted) + by_lse * softmax - by_entropy * information);
}

template <class T, class Entry>
target_reference reference_targets(target_problem<T, Entry> const& p, upstream_samples const& upstream = {}) {
  loss_operands const of(p.base);
  target_reference result;
  loss_problem<T> one = p.base;  // of labels
  one.options.ignore_index = -100;
  for (std::int64_t token = 0; token < p.base.tokens; ++token) {
    result.tokens.push_back(reference_target_token(p, one, of, token));
    target_token const& last = result.tokens.back();
    result.total += last.of.loss;
    result.weight += last.weight;
    result.count += last.counts ? 1 : 0;
    result.correct += last.counts && last.of.label == last.of.prediction ? 1 : 0;
  }
  bool const is_mean = p.base.options.reduction == tessera::loss_reduction::mean;
  bool const is_reduced = p.base.options.reduction != tessera::loss_reduction::none;
  double const scale = !is_mean ? 1.0 : result.weight != 0 ? 1 / result.weight : 0.0;
  result.total *= scale;
  result.gradient = {std::vector<double>(p.base.hidden.size()), std::vector<double>(p.base.classifier.size()),
                     std::vector<double>(static_cast<std::size_t>(p.base.vocabulary))};
  for (std::int64_t token = 0; token < p.base.tokens; ++token) {
    target_token const& t = result.tokens[static_cast<std::size_t>(token)];
    std::size_t const given = is_reduced ? 0 : static_cast<std::size_t>(token);
    double const by_loss = scale * (upstream.loss.empty() ? 1.0 : upstream.loss[given]) * t.weight;
    for (std::int64_t entry = 0; entry < p.base.vocabulary && t.counts; ++entry) {
      double const by_sum = reference_target_gradient(p, t, token, entry, by_loss, upstream);
      std::int64_t const own = token * p.base.channels;
      std::int64_t const row = entry * p.base.channels;
      result.gradient.bias[static_cast<std::size_t>(entry)] += by_sum;
      add_row(result.gradient.hidden.data() + own, by_sum, of.classifier.data() + row, p.base.channels);
      add_row(result.gradient.classifier.data() + row, by_sum, of.hidden.data() + own, p.base.channels);
    }
  }
  return result;
}

/// A matrix of gradients, or null where it has no memory: it is not wanted.
template <class Gradient>
tessera::matrix_view<Gradient> matrix_or_null(Gradient* data, std::int64_t size, std::int64_t rows,
                                              std::int64_t columns) {
  return size < rows * columns ? tessera::matrix_view<Gradient>{}
                               : tessera::matrix_view<Gradient>{data, {rows, columns}};
}

/// Runs both passes with their own workspace, `times` times the second one. Gradients overwrite `found`, or are added
/// to it; those without memory there are not wanted.
template <class Loss, class Gradient, class Executor, class T, class Entry, class Map>
loss_results run_targets_into(Executor const& exec, target_problem<T, Entry> const& p, upstream_samples const& upstream,
                              Map const& map, gradient_results<Gradient>& found, bool accumulates, int times = 1) {
  using loss = tessera::soft_target_loss<Loss>;
  loss_results results(p.base.tokens, p.base.options.reduction);
  auto const plan = loss::template plan_backward<Gradient>(exec, p.shape(), p.base.options);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  exec.copy(std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}), memory);
  tessera::workspace const space(plan, memory);
  auto const in = p.inputs(map);
  loss::forward(exec, in, p.base.options, results.outputs<typename loss::label_loss::reducer_type>(), space);
  tessera::linear_loss_gradients<Gradient> const out{
      matrix_or_null(found.hidden.data(), std::ssize(found.hidden), p.base.tokens, p.base.channels),
      matrix_or_null(found.classifier.data(), std::ssize(found.classifier), p.base.vocabulary, p.base.channels),
      found.bias,
      accumulates,
      accumulates,
      accumulates};
  for (int time = 0; time < times; ++time) {
    loss::backward(exec, in, p.base.options, upstream.views(), out, space);
  }
  return results;
}

/// Memory for a problem's gradients, filled with what no gradient is.
template <class Gradient, class T, class Entry>
gradient_results<Gradient> untouched_gradients(target_problem<T, Entry> const& p) {
  Gradient const untouched = tessera::store<Gradient>(-77.0F);
  return {{},
          std::vector<Gradient>(p.base.hidden.size(), untouched),
          std::vector<Gradient>(p.base.classifier.size(), untouched),
          std::vector<Gradient>(static_cast<std::size_t>(p.base.vocabulary), untouched)};
}

/// How many values of a forward pass are wrong.
inline std::int64_t wrong_targets(target_reference const& expected, loss_results const& found, bool is_reduced,
                                  double tolerance) {
  std::int64_t wrong = 0;
  auto const compare = [&](float value, double wanted) {
    wrong += std::fabs(static_cast<double>(value) - wanted) <= tolerance * (1 + std::fabs(wanted)) ? 0 : 1;
  };
  if (is_reduced) {
    compare(found.loss[0], expected.total);
  }
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
    compare(found.log_sum_exp[i], expected.tokens[i].of.log_sum_exp);
    compare(found.log_probability[i], expected.tokens[i].of.log_probability);
    if (!is_reduced) {
      compare(found.loss[i], expected.tokens[i].of.loss);
    }
  }
  return wrong + (found.count[0] == expected.count ? 0 : 1);
}

}  // namespace tessera_test
