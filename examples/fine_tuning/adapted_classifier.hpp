// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A classifier behind a linear adapter, and the gradients of both by a loss whose logits are never in memory.
///
///     adapted = hidden + hidden adapter^T        logits = adapted classifier^T
///
/// The adapter begins with zeros, so that training begins with the model as it is. With it, both gradients of the loss
/// are used: that of the hidden states for the adapter, that of the classifier for itself. Training uses mixed
/// precision: bf16 for the products of the loss, and fp32 weights that steps are added to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "../support/classifier_problem.hpp"
#include "../support/entries_in_order.hpp"
#include "live_entries.hpp"

namespace tessera_examples {

/// Weights and the gradients by them.
struct adapted_weights {
  std::vector<float> adapter;     ///< channels x channels
  std::vector<float> classifier;  ///< vocabulary x channels
};

/// The tokens from `first` on.
struct token_range {
  std::size_t first;
  std::size_t count;
};

/// Adapted hidden states of a range, channels after channels: the sum in fp32, rounded once.
inline std::vector<tessera::bfloat16> adapted_states(classifier_problem const& data, token_range range,
                                                     std::vector<float> const& adapter) {
  std::size_t const channels = data.channels;
  std::vector<float> columns(adapter.size());  // the transposed adapter, so that the inner loop runs along rows
  for (std::size_t i = 0; i < channels; ++i) {
    for (std::size_t k = 0; k < channels; ++k) {
      columns[k * channels + i] = adapter[i * channels + k];
    }
  }
  std::vector<tessera::bfloat16> states(range.count * channels);
  std::vector<float> sums(channels);
  for (std::size_t token = 0; token < range.count; ++token) {
    tessera::bfloat16 const* const row = &data.hidden[(range.first + token) * channels];
    std::transform(row, row + channels, sums.begin(), [](tessera::bfloat16 value) { return tessera::load(value); });
    for (std::size_t k = 0; k < channels; ++k) {
      float const factor = tessera::load(row[k]);
      for (std::size_t i = 0; i < channels; ++i) {
        sums[i] += factor * columns[k * channels + i];
      }
    }
    std::transform(sums.begin(), sums.end(), &states[token * channels],
                   [](float value) { return tessera::store<tessera::bfloat16>(value); });
  }
  return states;
}

/// The gradient by the adapter from that by adapted states (tokens x channels).
inline void adapter_gradient(classifier_problem const& data, token_range range, std::vector<float> const& by_states,
                             std::vector<float>& gradient) {
  std::size_t const channels = data.channels;
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  std::vector<float> state(channels);
  for (std::size_t token = 0; token < range.count; ++token) {
    for (std::size_t k = 0; k < channels; ++k) {
      state[k] = tessera::load(data.hidden[(range.first + token) * channels + k]);
    }
    for (std::size_t i = 0; i < channels; ++i) {
      float const factor = by_states[token * channels + i];
      for (std::size_t k = 0; k < channels; ++k) {
        gradient[i * channels + k] += factor * state[k];
      }
    }
  }
}

/// What trainings differ in: the thresholds of the filter, one for each gradient; 0: nothing is left out.
struct filter_choice {
  float hidden = 0;
  float classifier = 0;

  /// Whether a backward pass on sm_90a takes entries in the order of how many tokens they matter to. On the CPU it
  /// never does, so that the rows are brought into that order here: the same blocks are left out as there, or more,
  /// because there a block is multiplied if the one beside it is kept.
  [[nodiscard]] bool is_ordered() const { return std::min(hidden, classifier) > 0; }
};

/// The model that is trained. Loss: a linear_loss in bf16, whose filter has the size of blocks.
template <class Loss>
class adapted_classifier {
 public:
  adapted_classifier(classifier_problem const& data, filter_choice const& filter, int threads)
      : data_(data),
        filter_(filter),
        options_{.hidden_threshold = filter.hidden, .classifier_threshold = filter.classifier},
        exec_{.threads = threads},
        rounded_(data.classifier) {
    weights_.adapter.resize(data.channels * data.channels);
    for (tessera::bfloat16 const value : data.classifier) {
      weights_.classifier.push_back(tessera::load(value));
    }
    gradients_.adapter.resize(weights_.adapter.size());
    gradients_.classifier.resize(weights_.classifier.size());
  }

  /// The weights. Call round() after a change.
  adapted_weights& weights() { return weights_; }
  /// What differentiate() has found.
  [[nodiscard]] adapted_weights const& gradients() const { return gradients_; }

  /// Rounds the classifier's weights to bf16 for the loss.
  void round() {
    std::transform(weights_.classifier.begin(), weights_.classifier.end(), rounded_.begin(),
                   [](float value) { return tessera::store<tessera::bfloat16>(value); });
  }

  /// The mean loss of a range of tokens.
  float loss(token_range range) const {
    std::vector<tessera::bfloat16> const states = adapted_states(data_, range, weights_.adapter);
    auto const plan = Loss::plan_forward(exec_, shape_of(range), options_);
    tessera::buffer<std::byte> memory(exec_, plan.bytes());
    float value = 0;
    Loss::forward(exec_, inputs(states, rounded_, labels_of(range)), options_, {.loss = {&value, 1}},
                  tessera::workspace(plan, memory));
    exec_.wait();
    return value;
  }

  /// The mean loss of a range of tokens; finds the gradients, too.
  float differentiate(token_range range) {
    std::vector<tessera::bfloat16> const states = adapted_states(data_, range, weights_.adapter);
    std::vector<std::int32_t> const labels = labels_of(range);
    std::vector<float> by_states(states.size());
    float value = 0;
    if (filter_.is_ordered()) {
      std::vector<std::int32_t> const order =
          entries_in_order(exec_, live_entries(exec_, matrix(states), matrix(rounded_), labels, least_threshold()),
                           static_cast<std::int64_t>(data_.vocabulary));
      std::vector<std::int32_t> const slots = slots_of(order);
      value = run(states, rows_in_order(rounded_, order), labels_in_order(labels, slots), by_states);
      gradients_.classifier = rows_in_order(gradients_.classifier, slots);
    } else {
      value = run(states, rounded_, labels, by_states);
    }
    adapter_gradient(data_, range, by_states, gradients_.adapter);
    return value;
  }

 private:
  [[nodiscard]] float least_threshold() const { return std::min(filter_.hidden, filter_.classifier); }
  [[nodiscard]] tessera::linear_loss_shape shape_of(token_range range) const {
    return {static_cast<std::int64_t>(range.count), static_cast<std::int64_t>(data_.vocabulary),
            static_cast<std::int64_t>(data_.channels)};
  }
  [[nodiscard]] std::vector<std::int32_t> labels_of(token_range range) const {
    auto const from = data_.labels.begin() + static_cast<std::ptrdiff_t>(range.first);
    return {from, from + static_cast<std::ptrdiff_t>(range.count)};
  }
  template <class T>
  [[nodiscard]] tessera::matrix_view<T const> matrix(std::vector<T> const& rows) const {
    auto const channels = static_cast<std::int64_t>(data_.channels);
    return {rows.data(), {static_cast<std::int64_t>(rows.size()) / channels, channels}};
  }
  typename Loss::template inputs<std::int32_t> inputs(std::vector<tessera::bfloat16> const& states,
                                                      std::vector<tessera::bfloat16> const& classifier,
                                                      std::vector<std::int32_t> const& labels) const {
    return {matrix(states), matrix(classifier), labels};
  }

  /// Both passes; writes the gradients by states and classifier.
  float run(std::vector<tessera::bfloat16> const& states, std::vector<tessera::bfloat16> const& classifier,
            std::vector<std::int32_t> const& labels, std::vector<float>& by_states) {
    tessera::linear_loss_shape const shape = shape_of({0, labels.size()});
    auto const plan = Loss::template plan_backward<float>(exec_, shape, options_);
    tessera::buffer<std::byte> memory(exec_, plan.bytes());
    tessera::workspace const space(plan, memory);
    tessera::linear_loss_gradients<float> const out{{by_states.data(), {shape.tokens, shape.channels}},
                                                    {gradients_.classifier.data(), {shape.vocabulary, shape.channels}}};
    float value = 0;
    Loss::forward(exec_, inputs(states, classifier, labels), options_, {.loss = {&value, 1}}, space);
    Loss::backward(exec_, inputs(states, classifier, labels), options_, {}, out, space);
    exec_.wait();
    return value;
  }

  classifier_problem const& data_;
  filter_choice filter_;
  tessera::linear_loss_options options_;
  tessera::cpu exec_;
  adapted_weights weights_;
  adapted_weights gradients_;
  std::vector<tessera::bfloat16> rounded_;
};

}  // namespace tessera_examples
