// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A layer of SmolLM2-135M on 512 tokens of real text (tests/data/README.md), and what its attention gives in double.
///
///     smollm2_layer const layer(folder, 15);
///     double const error = relative_error(found, layer.exact_attention());
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/view/head_view.hpp>

#include "mapped_file.hpp"
#include "safetensors.hpp"
#include "tensor_elements.hpp"

namespace tessera_examples {

/// Layers 14, 15 and 16 are there. All tensors are heads x tokens x channels.
struct smollm2_layer {
  static constexpr std::int64_t query_heads = 9;
  static constexpr std::int64_t key_heads = 3;
  static constexpr std::int64_t tokens = 512;
  static constexpr std::int64_t queries = 64;  ///< those of the last tokens
  static constexpr std::int64_t channels = 64;

  std::vector<tessera::bfloat16> plain_queries;  ///< before their rotation by the token's position
  std::vector<tessera::bfloat16> plain_keys;     ///< likewise
  std::vector<tessera::bfloat16> turned_queries;
  std::vector<tessera::bfloat16> turned_keys;
  std::vector<tessera::bfloat16> values;

  smollm2_layer(std::string const& folder, int number) {
    std::string const path = folder + "/smollm2_attention.safetensors";
    mapped_file const file(path);
    safetensors_reader const model(file.bytes(), path);
    auto const read = [&](char const* name, std::int64_t heads, std::int64_t count) {
      auto found = elements_of<tessera::bfloat16>(model, path, "layers." + std::to_string(number) + name, "BF16");
      require(exit_code::unsound, std::ssize(found) == heads * count * channels, path, ": layer ", number, name,
              " has ", found.size(), " elements but ", heads * count * channels, " are expected");
      return found;
    };
    plain_queries = read(".queries_pre_rope.last_64", query_heads, queries);
    plain_keys = read(".keys_pre_rope", key_heads, tokens);
    turned_keys = read(".keys_post_rope", key_heads, tokens);
    values = read(".values", key_heads, tokens);
    tessera::rotary_tables const tables = rotation();
    auto const rotary = tables.embedding(tessera::rotary_pairs::halves);
    for (std::int64_t row = 0; row < query_heads * queries; ++row) {
      auto const at = [&](std::int64_t channel) {
        return tessera::load(plain_queries[index(row * channels + channel)]);
      };
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        float const turned = rotary.turn(tokens - queries + row % queries, channel, at);
        turned_queries.push_back(tessera::store<tessera::bfloat16>(turned));
      }
    }
  }

  /// The model's rotary embedding, for twice as many positions as there are tokens.
  static tessera::rotary_tables rotation() {
    return tessera::rotary_tables(tessera::rotary_frequencies(100000.0, static_cast<int>(channels)), 2 * tokens);
  }

  static tessera::head_view<tessera::bfloat16 const> heads_of(std::vector<tessera::bfloat16> const& list) {
    std::int64_t const count = std::ssize(list) == query_heads * queries * channels ? queries : tokens;
    return {list.data(), {1, std::ssize(list) / (count * channels), count, channels}};
  }

  /// Causal attention of the last tokens: query heads x queries x channels.
  [[nodiscard]] std::vector<double> exact_attention() const {
    std::vector<double> result;
    for (std::int64_t head = 0; head < query_heads; ++head) {
      for (std::int64_t query = 0; query < queries; ++query) {
        attend(head, query, result);
      }
    }
    return result;
  }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  static double at(std::vector<tessera::bfloat16> const& list, std::int64_t row, std::int64_t channel) {
    return static_cast<double>(tessera::load(list[index(row * channels + channel)]));
  }

  void attend(std::int64_t head, std::int64_t query, std::vector<double>& result) const {
    std::int64_t const first = head / (query_heads / key_heads) * tokens;
    std::int64_t const seen = tokens - queries + query + 1;
    std::vector<double> sums(index(channels));
    double weights = 0;
    for (std::int64_t key = 0; key < seen; ++key) {
      double score = 0;
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        score += at(turned_queries, head * queries + query, channel) * at(turned_keys, first + key, channel);
      }
      // Scores of this model are far from where exp() overflows.
      double const weight = std::exp(score / std::sqrt(static_cast<double>(channels)));
      weights += weight;
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        sums[index(channel)] += weight * at(values, first + key, channel);
      }
    }
    for (double const sum : sums) {
      result.push_back(sum / weights);
    }
  }
};

/// Length of the difference, by that of what was expected.
template <class T>
double relative_error(std::vector<T> const& found, std::vector<double> const& expected) {
  require(exit_code::unsound, found.size() == expected.size(), found.size(), " results for ", expected.size());
  double apart = 0;
  double length = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    double const difference = static_cast<double>(found[i]) - expected[i];
    apart += difference * difference;
    length += expected[i] * expected[i];
  }
  return std::sqrt(apart / length);
}

}  // namespace tessera_examples
