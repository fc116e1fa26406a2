// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The accuracy that a compressed cache costs: restored directions, and attention over two neighbouring layers, with
/// the bytes that were measured.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/paged_cache/cache_bytes.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>

#include "support/cache_problem.hpp"
#include "support/real_tensor.hpp"

namespace tessera_test {

/// Keys, values and queries of two layers.
struct quality_data {
  std::string name;
  layer_pair<bfloat16> pair;
  std::int64_t query_heads;
  std::int64_t queries;
  std::vector<bfloat16> of_layer[2];
  bool is_causal;
  std::vector<double> exact[2] = {};  ///< attention of each layer over the original keys and values
};

struct quality {
  double ratio;         ///< bytes of bf16 over measured bytes
  double retained;      ///< the part of the tokens that are retained
  double key_cosine;    ///< mean cosine of restored and original keys, both layers
  double value_cosine;  ///< mean cosine of restored and original values, both layers
  double error[2];      ///< relative error of each layer's attention
  double mean() const { return (error[0] + error[1]) / 2; }
  double cosine() const { return (key_cosine + value_cosine) / 2; }
};

/// Two heads of directions whose cosine is `cosine`, but -0.6 for one token in a hundred. Four channels lie far from
/// zero; lengths vary, and grow by 1.22. Queries look for single tokens.
inline quality_data data_at(double cosine, std::int64_t tokens = 1024, std::int64_t channels = 128) {
  quality_data data{"cosine " + std::to_string(cosine).substr(0, 4), {1, 2, tokens, channels, {}}, 2, 64, {}, false};
  testing::gauss const normal;
  for (int which = 0; which < 2; ++which) {
    for (int layer = 0; layer < 2; ++layer) {
      data.pair.part[layer][which].resize(as_size(2 * tokens * channels));
    }
    auto const seed = static_cast<std::uint64_t>(900 + which);
    for (std::int64_t row = 0; row < 2 * tokens; ++row) {
      auto const at = static_cast<std::uint64_t>(row * channels);
      bool const is_outlier = testing::hash(seed, static_cast<std::uint64_t>(row)) % 100 == 0;
      double const c = is_outlier ? -0.6 : cosine;
      std::vector<double> u;
      std::vector<double> v;
      double uu = 0;
      double uv = 0;
      for (std::int64_t i = 0; i < channels; ++i) {
        double const away = which == 0 && i % (channels / 4) == 5 ? (i % 3 == 0 ? 4.0 : -4.0) : 0.0;
        u.push_back(away + static_cast<double>(normal.value(seed, at + static_cast<std::uint64_t>(i))));
        v.push_back(static_cast<double>(normal.value(seed + 10, at + static_cast<std::uint64_t>(i))));
        uu += u.back() * u.back();
        uv += u.back() * v.back();
      }
      double vv = 0;
      for (std::size_t i = 0; i < v.size(); ++i) {
        v[i] -= uv / uu * u[i];
        vv += v[i] * v[i];
      }
      double const length = std::exp(0.25 * static_cast<double>(normal.value(seed + 20, at)));
      for (std::size_t i = 0; i < v.size(); ++i) {
        double const second = c * u[i] + std::sqrt(1 - c * c) * v[i] * std::sqrt(uu / vv);
        data.pair.part[0][which][as_size(row * channels) + i] = store<bfloat16>(static_cast<float>(length * u[i]));
        data.pair.part[1][which][as_size(row * channels) + i] =
            store<bfloat16>(static_cast<float>(1.22 * length * second));
      }
    }
  }
  for (int layer = 0; layer < 2; ++layer) {
    for (std::int64_t row = 0; row < 2 * data.queries; ++row) {
      auto const target = static_cast<std::int64_t>(testing::hash(77, static_cast<std::uint64_t>(row)) %
                                                    static_cast<std::uint64_t>(tokens));
      for (std::int64_t i = 0; i < channels; ++i) {
        std::int64_t const key = (row / data.queries * tokens + target) * channels + i;
        double const like = static_cast<double>(load(data.pair.part[layer][0][as_size(key)]));
        double const noise = static_cast<double>(normal.value(55, static_cast<std::uint64_t>(row * channels + i)));
        data.of_layer[layer].push_back(store<bfloat16>(static_cast<float>(0.4 * like + 0.5 * noise)));
      }
    }
  }
  return data;
}

/// Queries of the last 64 tokens, rotated by the rotary embedding of a real model (tests/data/README.md).
inline std::vector<bfloat16> rotated_queries(std::vector<bfloat16> queries) {
  for (std::size_t row = 0; row < queries.size() / 64; ++row) {
    double const position = 448.0 + static_cast<double>(row % 64);
    for (std::size_t i = 0; i < 32; ++i) {
      double const angle = position * std::pow(1e5, -static_cast<double>(i) / 32);
      double const x = static_cast<double>(load(queries[row * 64 + i]));
      double const y = static_cast<double>(load(queries[row * 64 + i + 32]));
      queries[row * 64 + i] = store<bfloat16>(static_cast<float>(std::cos(angle) * x - std::sin(angle) * y));
      queries[row * 64 + i + 32] = store<bfloat16>(static_cast<float>(std::sin(angle) * x + std::cos(angle) * y));
    }
  }
  return queries;
}

/// Keys, values and queries of layer `first` and the next one of a real model.
inline quality_data real_data(int first) {
  constexpr char const* file = "smollm2_attention.safetensors";
  quality_data data{
      "layers " + std::to_string(first) + ", " + std::to_string(first + 1), {1, 3, 512, 64, {}}, 9, 64, {}, true};
  for (int layer = 0; layer < 2; ++layer) {
    std::string const name = "layers." + std::to_string(first + layer) + ".";
    data.pair.part[layer][0] = real_tensor<bfloat16>(file, name + "keys_post_rope");
    data.pair.part[layer][1] = real_tensor<bfloat16>(file, name + "values");
    data.of_layer[layer] = rotated_queries(real_tensor<bfloat16>(file, name + "queries_pre_rope.last_64"));
  }
  return data;
}

inline attention_results attention_of(quality_data const& data, int layer, std::vector<double> const& keys,
                                      std::vector<double> const& values) {
  attention_problem<bfloat16> p{
      {1, data.query_heads, data.pair.heads, data.queries, data.pair.tokens, data.pair.channels},
      data.of_layer[layer],
      {},
      {}};
  p.options.is_causal = data.is_causal;
  return attention_by_formula(p, {p.shape, as_doubles(data.of_layer[layer]), keys, values});
}

inline quality_data with_exact(quality_data data) {
  for (int layer = 0; layer < 2; ++layer) {
    data.exact[layer] =
        attention_of(data, layer, as_doubles(data.pair.part[layer][0]), as_doubles(data.pair.part[layer][1])).result;
  }
  return data;
}

inline double mean_cosine(std::vector<double> const& a, std::vector<double> const& b, std::int64_t channels) {
  double sum = 0;
  std::size_t const rows = a.size() / as_size(channels);
  for (std::size_t row = 0; row < rows; ++row) {
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (std::size_t i = row * as_size(channels); i < (row + 1) * as_size(channels); ++i) {
      ab += a[i] * b[i];
      aa += a[i] * a[i];
      bb += b[i] * b[i];
    }
    sum += ab / std::sqrt(aa * bb) / static_cast<double>(rows);
  }
  return sum;
}

/// The quality of a cache whose tokens are all sealed. With pages of one layer, each layer has its own cache.
template <class Merger>
quality quality_of(quality_data const& data, int bits, int layers, retain_most_different rule, Merger const& merger,
                   int value_group = 64) {
  layer_pair<bfloat16> const& pair = data.pair;
  int const channels = static_cast<int>(pair.channels);
  cache_page_format const format{channels, bits, bits, divide_up(channels, value_group), layers};
  quality found{};
  std::int64_t bytes = 0;
  for (int layer = 0; layer < 2; ++layer) {
    bool const is_merged = layers == 2;
    cache_problem<bfloat16> cache(format, pair.heads, 1, pair.tokens, 0, is_merged ? pair.tokens : 0);
    auto inputs = pair.inputs();
    if (!is_merged && layer == 1) {
      std::swap(inputs.keys[0], inputs.keys[1]);
      std::swap(inputs.values[0], inputs.values[1]);
    }
    cache.append(cpu{}, inputs, rule, merger);
    int const side = is_merged ? layer : 0;
    std::vector<double> restored[2];
    for (int which = 0; which < 2; ++which) {
      restored[which] = as_doubles(cache.template restored<float>(side, which, pair.tokens));
      double const cosine = mean_cosine(restored[which], as_doubles(pair.part[layer][which]), pair.channels);
      (which == 0 ? found.key_cosine : found.value_cosine) += cosine / 2;
    }
    auto const& exact = data.exact[layer];
    auto const result = attention_of(data, layer, restored[0], restored[1]).result;
    double apart = 0;
    double size = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      apart += (exact[i] - result[i]) * (exact[i] - result[i]);
      size += exact[i] * exact[i];
    }
    found.error[layer] = std::sqrt(apart / size);
    if (layer == 0 || !is_merged) {
      std::int64_t rows = 0;
      for (std::uint32_t count : cache.row_counts) {
        rows += count;
      }
      cache_bytes used;
      used.add_pages(format, pair.heads * pair.tokens / 64);
      bytes += used.used() + rows * 2 * layers * pair.channels * 2;
      found.retained += static_cast<double>(rows) / static_cast<double>(pair.heads * pair.tokens);
    }
  }
  found.ratio = static_cast<double>(pair.heads * pair.tokens * pair.channels * 8) / static_cast<double>(bytes);
  return found;
}

}  // namespace tessera_test
