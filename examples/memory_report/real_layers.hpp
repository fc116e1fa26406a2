// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Neighbouring layers of SmolLM2 on real text (tests/data/README.md), with the attention of the last tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/view/view.hpp>

#include "exact_attention.hpp"

namespace tessera_examples {

/// Heads x tokens x channels each; queries are those of the last tokens.
struct real_layer {
  std::string name;  ///< the layer's number
  std::vector<tessera::bfloat16> queries;
  std::vector<tessera::bfloat16> keys;
  std::vector<tessera::bfloat16> values;
  std::vector<tessera::bfloat16> rotated_queries;  ///< by the token's position
  std::vector<tessera::bfloat16> rotated_keys;
  std::vector<exact_attention> exact;  ///< causal, query heads x queries
};

struct real_layers {
  static constexpr std::int64_t channels = 64;
  static constexpr std::int64_t queries = 64;  ///< of a head
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

/// Of smollm2_attention.safetensors. Throws a failure where tensors do not fit together.
real_layers read_layers(std::string const& path);

}  // namespace tessera_examples
