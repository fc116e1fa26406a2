// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "real_layers.hpp"

#include <iterator>

#include <tessera/core/precision.hpp>

#include "../support/failure.hpp"
#include "../support/mapped_file.hpp"
#include "../support/safetensors.hpp"
#include "../support/tensor_elements.hpp"

namespace tessera_examples {
namespace {

using tessera::bfloat16;
using tessera::view;

/// The first token of `heads` is at position `first`.
std::vector<bfloat16> rotated(tessera::rotary_embedding const& rotary, view<bfloat16 const, 3> heads,
                              std::int64_t first) {
  std::vector<bfloat16> turned;
  for (std::int64_t head = 0; head < heads.extent(0); ++head) {
    for (std::int64_t token = 0; token < heads.extent(1); ++token) {
      auto const row = [&](std::int64_t channel) { return tessera::load(heads(head, token, channel)); };
      for (std::int64_t channel = 0; channel < heads.extent(2); ++channel) {
        turned.push_back(tessera::store<bfloat16>(rotary.turn(first + token, channel, row)));
      }
    }
  }
  return turned;
}

void add_attention(real_layers const& data, real_layer& layer) {
  std::int64_t const before = data.tokens - real_layers::queries;
  layer.rotated_queries = rotated(data.rotary(), data.queries_in(layer.queries), before);
  for (std::int64_t head = 0; head < data.query_heads; ++head) {
    std::int64_t const key_head = head / (data.query_heads / data.key_heads);
    for (std::int64_t query = 0; query < real_layers::queries; ++query) {
      layer.exact.push_back(
          attend_exactly<bfloat16>(data.queries_in(layer.rotated_queries)[head][query],
                                   data.keys_in(layer.rotated_keys)[key_head].slice(0, 0, before + query + 1),
                                   data.keys_in(layer.values)[key_head].slice(0, 0, before + query + 1)));
    }
  }
}

}  // namespace

real_layers read_layers(std::string const& path) {
  mapped_file const file(path);
  safetensors_reader const model(file.bytes(), path);
  constexpr std::int64_t channels = real_layers::channels;
  constexpr double base = 100000;  // of the model's rotary embedding
  std::int64_t const tokens = std::ssize(elements_of<std::int32_t>(model, path, "token_ids", "I32"));
  real_layers data{0, 0, tokens, {tessera::rotary_frequencies(base, int{channels}), 2 * tokens}, {}};
  for (char const* name : {"14", "15", "16"}) {
    auto const read = [&](char const* tensor) {
      return elements_of<bfloat16>(model, path, tessera::join("layers.", name, ".", tensor), "BF16");
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
    add_attention(data, layer);
    data.layers.push_back(std::move(layer));
  }
  return data;
}

}  // namespace tessera_examples
