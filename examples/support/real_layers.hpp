// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Neighbouring layers of SmolLM2 on real text (tests/data/README.md), with the attention of the last tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/view/view.hpp>

#include "distance.hpp"
#include "exact_attention.hpp"
#include "failure.hpp"
#include "input_file.hpp"
#include "safetensors.hpp"
#include "tensor_elements.hpp"

namespace tessera_examples {

/// One layer's queries, keys and values, heads x tokens x channels each; queries are those of the last tokens.
struct real_layer {
  std::string name;  ///< the layer's number
  std::vector<tessera::bfloat16> queries;
  std::vector<tessera::bfloat16> keys;
  std::vector<tessera::bfloat16> values;
  std::vector<tessera::bfloat16> rotated_queries;  ///< rotated by the token's position
  std::vector<tessera::bfloat16> rotated_keys;
  std::vector<exact_attention> exact;  ///< causal attention, query heads x queries
};

struct real_layers {
  static constexpr std::int64_t channels = 64;
  static constexpr std::int64_t queries = 64;  ///< queries of a head
  std::int64_t query_heads;
  std::int64_t key_heads;
  std::int64_t tokens;
  tessera::rotary_tables tables;
  std::vector<real_layer> layers;

  /// Views of a layer's parts: heads x queries x channels, heads x tokens x channels.
  [[nodiscard]] tessera::view<tessera::bfloat16 const, 3> queries_in(std::vector<tessera::bfloat16> const& part) const {
    return {part.data(), {query_heads, queries, channels}};
  }
  [[nodiscard]] tessera::view<tessera::bfloat16 const, 3> keys_in(std::vector<tessera::bfloat16> const& part) const {
    return {part.data(), {key_heads, tokens, channels}};
  }
  /// Bytes of the keys and values of a layer.
  [[nodiscard]] std::int64_t plain_bytes() const {
    return 2 * key_heads * tokens * channels * std::int64_t{sizeof(tessera::bfloat16)};
  }
  [[nodiscard]] tessera::rotary_embedding rotary() const { return tables.embedding(tessera::rotary_pairs::halves); }
};

/// The length of the difference of a layer's results, query heads x queries x channels, relative to the exact ones.
inline double relative_error(std::vector<float> const& found, real_layer const& layer) {
  distance apart;
  std::size_t at = 0;
  for (exact_attention const& exact : layer.exact) {
    for (double const expected : exact.result) {
      apart.add(static_cast<double>(found.at(at++)), expected);
    }
  }
  return apart.relative();
}

namespace detail {

/// Rotates `heads`, whose first token is at position `first`.
inline std::vector<tessera::bfloat16> rotated(tessera::rotary_embedding const& rotary,
                                              tessera::view<tessera::bfloat16 const, 3> heads, std::int64_t first) {
  std::vector<tessera::bfloat16> turned;
  for (std::int64_t head = 0; head < heads.extent(0); ++head) {
    for (std::int64_t token = 0; token < heads.extent(1); ++token) {
      auto const row = [&](std::int64_t channel) { return tessera::load(heads(head, token, channel)); };
      for (std::int64_t channel = 0; channel < heads.extent(2); ++channel) {
        turned.push_back(tessera::store<tessera::bfloat16>(rotary.turn(first + token, channel, row)));
      }
    }
  }
  return turned;
}

inline void add_attention(real_layers const& data, real_layer& layer) {
  std::int64_t const before = data.tokens - real_layers::queries;
  layer.rotated_queries = rotated(data.rotary(), data.queries_in(layer.queries), before);
  for (std::int64_t head = 0; head < data.query_heads; ++head) {
    std::int64_t const key_head = head / (data.query_heads / data.key_heads);
    for (std::int64_t query = 0; query < real_layers::queries; ++query) {
      layer.exact.push_back(
          attend_exactly<tessera::bfloat16>(data.queries_in(layer.rotated_queries)[head][query],
                                            data.keys_in(layer.rotated_keys)[key_head].slice(0, 0, before + query + 1),
                                            data.keys_in(layer.values)[key_head].slice(0, 0, before + query + 1)));
    }
  }
}

}  // namespace detail

/// Reads smollm2_attention.safetensors. Throws a failure where tensors do not fit together.
inline real_layers read_layers(std::string const& path) {
  input_file const file(path);
  safetensors_reader const model(file, path);
  constexpr std::int64_t channels = real_layers::channels;
  constexpr double base = 100000;  // base of the model's rotary embedding
  std::int64_t const tokens = std::ssize(elements_of<std::int32_t>(model, path, "token_ids", "I32"));
  real_layers data{0, 0, tokens, {tessera::rotary_frequencies(base, int{channels}), 2 * tokens}, {}};
  for (char const* name : {"14", "15", "16"}) {
    auto const read = [&](char const* tensor) {
      return elements_of<tessera::bfloat16>(model, path, tessera::join("layers.", name, ".", tensor), "BF16");
    };
    real_layer layer{
        name, read("queries_pre_rope.last_64"), read("keys_pre_rope"), read("values"), {}, read("keys_post_rope"), {}};
    data.query_heads = std::ssize(layer.queries) / (real_layers::queries * channels);
    data.key_heads = std::ssize(layer.keys) / (tokens * channels);
    bool const fits = data.key_heads > 0 && data.query_heads % data.key_heads == 0 && tokens >= real_layers::queries &&
                      std::ssize(layer.queries) == data.query_heads * real_layers::queries * channels &&
                      std::ssize(layer.keys) == data.key_heads * tokens * channels &&
                      layer.values.size() == layer.keys.size() && layer.rotated_keys.size() == layer.keys.size();
    require(exit_code::unsound, fits, path, ": queries, keys and values of layer ", name, " do not fit together");
    detail::add_attention(data, layer);
    data.layers.push_back(std::move(layer));
  }
  return data;
}

}  // namespace tessera_examples
