// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A few rows of logits for tests of the loss's portable programs, and what they are in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/testing/generators.hpp>

namespace tessera_test {

using small_logit_tile = tessera::gemm_tile<tessera::bfloat16, tessera::shape<64, 64, 16>>;

/// Tokens of which every fourth has no label, and a classifier.
struct small_logits {
  std::int64_t tokens;
  std::int64_t vocabulary;
  std::int64_t channels;
  float cap = 0.0F;
  float inverse_temperature = 1.0F;
  std::vector<tessera::bfloat16> hidden;
  std::vector<tessera::bfloat16> classifier;
  std::vector<tessera::bfloat16> bias;  ///< may be empty
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> row_of;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> count{0};

  small_logits(std::int64_t of_tokens, std::int64_t of_vocabulary, std::int64_t of_channels)
      : tokens(of_tokens), vocabulary(of_vocabulary), channels(of_channels) {
    hidden = samples(tokens * channels, 1);
    classifier = samples(vocabulary * channels, 2);
    for (std::int64_t token = 0; token < tokens; ++token) {
      bool const is_used = token % 4 != 2;
      row_of.push_back(is_used ? count[0] : -1);
      if (is_used) {
        order.push_back(token);
        labels.push_back(static_cast<std::int32_t>(tessera::testing::hash(3, static_cast<std::uint64_t>(token)) %
                                                   static_cast<std::uint64_t>(vocabulary)));
        count[0] += 1;
      }
    }
    order.resize(static_cast<std::size_t>(tokens), -1);
    labels.resize(static_cast<std::size_t>(tokens), 0);
  }
  void bend(float of_cap, float temperature) {
    cap = of_cap;
    inverse_temperature = 1.0F / temperature;
    bias = samples(vocabulary, 4);
  }
  static std::vector<tessera::bfloat16> samples(std::int64_t number, std::uint64_t seed) {
    std::vector<tessera::bfloat16> values(static_cast<std::size_t>(number));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = tessera::store<tessera::bfloat16>(tessera::testing::gauss{0.5F}.value(seed, i));
    }
    return values;
  }

  template <class Tile = small_logit_tile>
  [[nodiscard]] tessera::loss_logits<Tile> logits() const {
    tessera::array_view<tessera::bfloat16 const> added;
    if (!bias.empty()) {
      added = bias;
    }
    return {{{hidden.data(), {tokens, channels}}, order},
            {{classifier.data(), {vocabulary, channels}}},
            {},
            {added, cap, inverse_temperature}};
  }
  [[nodiscard]] tessera::loss_token_list list() { return {order, row_of, labels, count}; }

  /// The logit of a row of the list in double; that of a row without a token comes of zeros.
  [[nodiscard]] double logit(std::int64_t row, std::int64_t entry) const {
    std::int64_t const token = order[static_cast<std::size_t>(row)];
    double sum = bias.empty() ? 0.0 : static_cast<double>(load(bias[static_cast<std::size_t>(entry)]));
    for (std::int64_t k = 0; token >= 0 && k < channels; ++k) {
      sum += static_cast<double>(load(hidden[static_cast<std::size_t>(token * channels + k)])) *
             static_cast<double>(load(classifier[static_cast<std::size_t>(entry * channels + k)]));
    }
    auto const bound = static_cast<double>(cap);
    return (cap > 0.0F ? bound * std::tanh(sum / bound) : sum) * static_cast<double>(inverse_temperature);
  }
  /// The log-sum-exp of a row in double.
  [[nodiscard]] double log_sum_exp(std::int64_t row) const {
    double sum = 0;
    for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
      sum += std::exp(logit(row, entry));
    }
    return std::log(sum);
  }
};

}  // namespace tessera_test
