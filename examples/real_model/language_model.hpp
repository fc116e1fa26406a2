// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The weights of a Llama-like model with tied embeddings, and how they are read from the file of make_model.py.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

#include "../support/failure.hpp"
#include "../support/safetensors.hpp"

namespace tessera_examples {

/// A matrix of weights, rows x columns, which outputs x inputs of a linear layer are.
struct weight_matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<tessera::bfloat16> values;

  [[nodiscard]] tessera::matrix_view<tessera::bfloat16 const> view() const { return {values.data(), {rows, columns}}; }
};

/// The weights of a layer.
struct layer_weights {
  weight_matrix attention_norm;  ///< 1 x channels
  weight_matrix queries;
  weight_matrix keys;
  weight_matrix values;
  weight_matrix results;            ///< takes the results of attention back to the model's channels
  weight_matrix feed_forward_norm;  ///< 1 x channels
  weight_matrix gate;
  weight_matrix up;
  weight_matrix down;
};

struct model_extents {
  int layers = 0;
  std::int64_t channels = 0;       ///< of hidden states
  std::int64_t query_heads = 0;    ///< query head h reads key head h / (query_heads / key_heads)
  std::int64_t key_heads = 0;      ///< key heads
  std::int64_t head_channels = 0;  ///< channels of a head
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  ///< the most tokens of a text
  double rope_theta = 0;
  float norm_epsilon = 0;
};

struct language_model {
  model_extents extents;
  weight_matrix embedding;  ///< vocabulary x channels; also the classifier
  std::vector<layer_weights> layers;
  weight_matrix last_norm;  ///< 1 x channels

  /// Calls use(matrix) for each matrix of weights.
  template <class Use>
  void each_matrix(Use const& use) {
    use(embedding);
    for (layer_weights& of : layers) {
      for (weight_matrix* matrix : {&of.attention_norm, &of.queries, &of.keys, &of.values, &of.results,
                                    &of.feed_forward_norm, &of.gate, &of.up, &of.down}) {
        use(*matrix);
      }
    }
    use(last_norm);
  }
};

namespace detail {

/// Reads numbers and tensors of a file by their names, and refuses what does not fit.
class model_reader {
 public:
  model_reader(safetensors_reader const& file, std::string path) : file_(file), path_(std::move(path)) {}

  template <class Number>
  [[nodiscard]] Number number(std::string const& key, Number least, Number most) const {
    auto const found = file_.metadata().find(key);
    require(exit_code::unsound, found != file_.metadata().end(), path_, ": its metadata have no ", key);
    std::string const& text = found->second;
    Number value{};
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    require(exit_code::unsound,
            code == std::errc{} && end == text.data() + text.size() && value >= least && value <= most, path_, ": ",
            key, " is ", shown(text), " but must be a number from ", least, " to ", most);
    return value;
  }
  [[nodiscard]] std::vector<std::int64_t> const& shape(std::string const& name) const { return entry(name).shape; }
  /// A matrix of these extents; a list is a matrix of one row.
  [[nodiscard]] weight_matrix matrix(std::string const& name, std::int64_t rows, std::int64_t columns) const {
    tensor_entry const& found = entry(name);
    std::vector<std::int64_t> const& shape = found.shape;
    bool const fits =
        found.dtype == "BF16" && (shape.size() == 2 ? shape[0] == rows && shape[1] == columns
                                                    : shape.size() == 1 && rows == 1 && shape[0] == columns);
    require(exit_code::unsound, fits, path_, ": tensor ", shown(name), " must be BF16 of ", rows, " x ", columns);
    return {rows, columns, file_.elements<tessera::bfloat16>(found)};
  }
  [[nodiscard]] std::string text(std::string const& name) const {
    tensor_entry const& found = entry(name);
    require(exit_code::unsound, found.dtype == "U8", path_, ": tensor ", shown(name), " must be U8");
    std::vector<char> const bytes = file_.elements<char>(found);
    return {bytes.begin(), bytes.end()};
  }

 private:
  [[nodiscard]] tensor_entry const& entry(std::string const& name) const {
    for (tensor_entry const& tensor : file_.tensors()) {
      if (tensor.name == name) {
        return tensor;
      }
    }
    throw failure(exit_code::unsound, path_ + ": has no tensor " + shown(name));
  }

  safetensors_reader const& file_;
  std::string path_;
};

inline model_extents read_extents(model_reader const& file) {
  constexpr std::int64_t most = 1 << 20;
  model_extents n;
  n.layers = file.number("layers", 1, 1000);
  n.query_heads = file.number("query_heads", std::int64_t{1}, most);
  n.key_heads = file.number("key_heads", std::int64_t{1}, n.query_heads);
  n.context = file.number("context", std::int64_t{1}, most);
  n.rope_theta = file.number("rope_theta", 1.0, 1e12);
  n.norm_epsilon = file.number("norm_epsilon", 0.0F, 1.0F);
  auto const& embedding = file.shape("model.embed_tokens.weight");
  require(exit_code::unsound, embedding.size() == 2, "the embedding has ", embedding.size(), " extents but needs ", 2);
  n.vocabulary = embedding[0];
  n.channels = embedding[1];
  require(exit_code::unsound, n.channels % n.query_heads == 0 && n.query_heads % n.key_heads == 0, "the model has ",
          n.channels, " channels, ", n.query_heads, " query heads and ", n.key_heads,
          " key heads, which do not divide each other");
  n.head_channels = n.channels / n.query_heads;
  return n;
}

inline layer_weights read_layer(model_reader const& file, model_extents const& n, int layer) {
  std::string const prefix = "model.layers." + std::to_string(layer) + ".";
  std::int64_t const keys = n.key_heads * n.head_channels;
  std::int64_t const inner = file.shape(prefix + "mlp.gate_proj.weight").at(0);
  auto const matrix = [&](char const* name, std::int64_t rows, std::int64_t columns) {
    return file.matrix(prefix + name + ".weight", rows, columns);
  };
  return {matrix("input_layernorm", 1, n.channels),           matrix("self_attn.q_proj", n.channels, n.channels),
          matrix("self_attn.k_proj", keys, n.channels),       matrix("self_attn.v_proj", keys, n.channels),
          matrix("self_attn.o_proj", n.channels, n.channels), matrix("post_attention_layernorm", 1, n.channels),
          matrix("mlp.gate_proj", inner, n.channels),         matrix("mlp.up_proj", inner, n.channels),
          matrix("mlp.down_proj", n.channels, inner)};
}

}  // namespace detail

/// Reads a model. `loaded(layer)` is called after each layer.
template <class Loaded>
language_model read_model(safetensors_reader const& file, std::string const& path, Loaded const& loaded) {
  detail::model_reader const reader(file, path);
  language_model model;
  model.extents = detail::read_extents(reader);
  model_extents const& n = model.extents;
  model.embedding = reader.matrix("model.embed_tokens.weight", n.vocabulary, n.channels);
  model.last_norm = reader.matrix("model.norm.weight", 1, n.channels);
  for (int layer = 0; layer < n.layers; ++layer) {
    model.layers.push_back(detail::read_layer(reader, n, layer));
    loaded(layer);
  }
  return model;
}

}  // namespace tessera_examples
