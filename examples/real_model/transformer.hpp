// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The forward pass of a Llama-like model by tessera's linear layers. Attention is the caller's, so that each method
/// can take its place.
///
///     transformer const net(exec, model);
///     hidden_states const hidden = net.forward(tokens, first, [&](layer_heads const& heads) { ... });
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/add_matrix.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

#include "../support/failure.hpp"
#include "language_model.hpp"

namespace tessera_examples {

using tessera::bfloat16;
using tessera::head_view;
using tessera::matrix_view;

/// A matrix in memory of its own.
template <class T>
struct own_matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<T> values;

  own_matrix() = default;
  own_matrix(std::int64_t of_rows, std::int64_t of_columns)
      : rows(of_rows), columns(of_columns), values(static_cast<std::size_t>(of_rows * of_columns)) {}

  [[nodiscard]] matrix_view<T> view() { return {values.data(), {rows, columns}}; }
  [[nodiscard]] matrix_view<T const> view() const { return {values.data(), {rows, columns}}; }
};

/// Normalised hidden states after the last layer, tokens x channels, as the classifier takes them.
using hidden_states = own_matrix<bfloat16>;

/// Heads in memory of their own: heads x tokens x channels, or tokens x heads x channels seen as the former.
inline head_view<bfloat16> heads_of(own_matrix<bfloat16>& matrix, std::int64_t heads) {
  std::int64_t const channels = matrix.columns / heads;
  return {matrix.values.data(), {1, heads, matrix.rows, channels}, {0, channels, matrix.columns, 1}};
}

/// What attention of one layer gets for some neighbouring tokens: 1 x heads x tokens x channels each.
struct layer_heads {
  int layer;
  std::int64_t first;                         ///< the position of the first token
  head_view<bfloat16 const> queries;          ///< before their rotation by the position
  head_view<bfloat16 const> keys;             ///< before their rotation
  head_view<bfloat16 const> values;           ///< values
  head_view<bfloat16 const> rotated_queries;  ///< after their rotation
  head_view<bfloat16 const> rotated_keys;     ///< after their rotation
  head_view<bfloat16> result;                 ///< where attention writes its results, for each query head
};

using attention_of_layer = std::function<void(layer_heads const&)>;

/// Rotates heads by the positions of their tokens, the first of which is `first`.
inline void rotate(tessera::rotary_embedding const& rotary, std::int64_t first, head_view<bfloat16 const> from,
                   head_view<bfloat16> to) {
  for (std::int64_t head = 0; head < from.extent(1); ++head) {
    for (std::int64_t token = 0; token < from.extent(2); ++token) {
      auto const source = [&](std::int64_t channel) { return tessera::load(from(0, head, token, channel)); };
      for (std::int64_t channel = 0; channel < from.extent(3); ++channel) {
        to(0, head, token, channel) = tessera::store<bfloat16>(rotary.turn(first + token, channel, source));
      }
    }
  }
}

class transformer {
 public:
  transformer(tessera::cpu exec, language_model const& model)
      : exec_(std::move(exec)),
        model_(model),
        tables_(tessera::rotary_frequencies(model.extents.rope_theta, static_cast<int>(model.extents.head_channels)),
                model.extents.context) {}

  [[nodiscard]] tessera::cpu const& exec() const { return exec_; }
  [[nodiscard]] language_model const& model() const { return model_; }
  [[nodiscard]] model_extents const& extents() const { return model_.extents; }
  [[nodiscard]] tessera::rotary_embedding rotary() const { return tables_.embedding(tessera::rotary_pairs::halves); }

  /// The hidden states of tokens at positions `first` and later. `attend` sees earlier tokens in its own memory.
  [[nodiscard]] hidden_states forward(std::span<std::int32_t const> tokens, std::int64_t first,
                                      attention_of_layer const& attend) const {
    require(exit_code::usage, first + std::ssize(tokens) <= extents().context, "the text has ",
            first + std::ssize(tokens), " tokens but the model's context ", extents().context);
    own_matrix<float> states = embedded(tokens);
    for (int layer = 0; layer < extents().layers; ++layer) {
      layer_weights const& weights = model_.layers[static_cast<std::size_t>(layer)];
      add_attention(layer, first, weights, attend, states);
      add_feed_forward(weights, states);
    }
    exec_.wait();
    return normalised(states, model_.last_norm);
  }

 private:
  using layer_type = tessera::linear<bfloat16>;

  [[nodiscard]] own_matrix<float> embedded(std::span<std::int32_t const> tokens) const {
    own_matrix<float> states(std::ssize(tokens), extents().channels);
    auto const table = model_.embedding.view();
    for (std::int64_t token = 0; token < states.rows; ++token) {
      std::int32_t const id = tokens[static_cast<std::size_t>(token)];
      require(exit_code::unsound, id >= 0 && id < extents().vocabulary, "token ", id, " is none of ",
              extents().vocabulary);
      for (std::int64_t channel = 0; channel < states.columns; ++channel) {
        states.view()(token, channel) = tessera::load(table(id, channel));
      }
    }
    return states;
  }

  /// States divided by their root mean square, times the weights.
  [[nodiscard]] own_matrix<bfloat16> normalised(own_matrix<float> const& states, weight_matrix const& weights) const {
    own_matrix<bfloat16> result(states.rows, states.columns);
    for (std::int64_t token = 0; token < states.rows; ++token) {
      float const* const from = states.values.data() + token * states.columns;
      double squares = 0;
      for (std::int64_t channel = 0; channel < states.columns; ++channel) {
        squares += static_cast<double>(from[channel]) * static_cast<double>(from[channel]);
      }
      double const mean = squares / static_cast<double>(states.columns);
      auto const scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(extents().norm_epsilon)));
      for (std::int64_t channel = 0; channel < states.columns; ++channel) {
        float const weight = tessera::load(weights.view()(0, channel));
        result.view()(token, channel) = tessera::store<bfloat16>(from[channel] * scale * weight);
      }
    }
    return result;
  }

  template <class Output>
  [[nodiscard]] own_matrix<Output> product(own_matrix<bfloat16> const& inputs, weight_matrix const& weights) const {
    own_matrix<Output> outputs(inputs.rows, weights.rows);
    layer_type::forward(exec_, inputs.view(), weights.view(), outputs.view());
    return outputs;
  }
  /// states += inputs weights^T
  void add_product(own_matrix<bfloat16> const& inputs, weight_matrix const& weights, own_matrix<float>& states) const {
    layer_type::forward(exec_, inputs.view(), weights.view(), tessera::add_matrix<float>{states.view()}, states.view());
  }

  void add_attention(int layer, std::int64_t first, layer_weights const& weights, attention_of_layer const& attend,
                     own_matrix<float>& states) const {
    model_extents const& n = extents();
    own_matrix<bfloat16> const inputs = normalised(states, weights.attention_norm);
    own_matrix<bfloat16> queries = product<bfloat16>(inputs, weights.queries);
    own_matrix<bfloat16> keys = product<bfloat16>(inputs, weights.keys);
    own_matrix<bfloat16> values = product<bfloat16>(inputs, weights.values);
    own_matrix<bfloat16> rotated_queries(queries.rows, queries.columns);
    own_matrix<bfloat16> rotated_keys(keys.rows, keys.columns);
    own_matrix<bfloat16> result(queries.rows, queries.columns);
    rotate(rotary(), first, heads_of(queries, n.query_heads), heads_of(rotated_queries, n.query_heads));
    rotate(rotary(), first, heads_of(keys, n.key_heads), heads_of(rotated_keys, n.key_heads));
    attend({layer, first, heads_of(queries, n.query_heads), heads_of(keys, n.key_heads), heads_of(values, n.key_heads),
            heads_of(rotated_queries, n.query_heads), heads_of(rotated_keys, n.key_heads),
            heads_of(result, n.query_heads)});
    add_product(result, weights.results, states);
  }

  void add_feed_forward(layer_weights const& weights, own_matrix<float>& states) const {
    own_matrix<bfloat16> const inputs = normalised(states, weights.feed_forward_norm);
    own_matrix<float> const gate = product<float>(inputs, weights.gate);
    own_matrix<float> const up = product<float>(inputs, weights.up);
    own_matrix<bfloat16> inner(gate.rows, gate.columns);
    for (std::size_t i = 0; i < inner.values.size(); ++i) {
      float const x = gate.values[i];
      inner.values[i] = tessera::store<bfloat16>(x / (1.0F + std::exp(-x)) * up.values[i]);
    }
    add_product(inner, weights.down, states);
  }

  tessera::cpu exec_;
  language_model const& model_;
  tessera::rotary_tables tables_;
};

}  // namespace tessera_examples
