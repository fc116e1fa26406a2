// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Codes and scales that are made here, for programs of attention over codes, and softmax(scores) * values in
/// double over what these codes stand for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/attention_mask.hpp>

#include "support/catch.hpp"

namespace tessera_test {

using namespace tessera;

inline constexpr double infinite = std::numeric_limits<double>::infinity();
inline constexpr std::int64_t all_keys = -1;

/// Weights and values in fp16, which round by 2^-11, or in 8-bit integers.
using half_method = attention_method<symmetric_quantizer<8, per_warp>, scaled_float_quantizer<float16, per_tensor>,
                                     online_softmax<float>>;
using byte_method =
    attention_method<symmetric_quantizer<8, per_warp>, symmetric_quantizer<8, per_tensor>, online_softmax<float>>;

/// A reader's own bias: some scores are less, and those of every eleventh key are masked.
struct sloping_bias {
  float operator()(std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t key) const {
    return key % 11 == 5 ? -std::numeric_limits<float>::infinity()
                         : -0.01F * static_cast<float>((3 * sequence + 5 * head + query + 2 * key) % 50);
  }
};

/// What a program of attention over codes gets: codes of two sequences of two query heads and a key head;
/// blocks of queries and tiles of keys are not full.
template <template <class, class, class, int> class Program, class Method, class Bias = no_bias>
struct coded_heads {
  using program_type = Program<Method, float, Bias, 64>;
  using code_type = typename Method::value_code;
  attention_shape shape{2, 2, 1, 70, 150, 40};
  std::vector<std::int8_t> queries;
  std::vector<std::int8_t> keys;
  std::vector<code_type> values;
  std::vector<float> query_scales;  ///< of 16 queries each
  std::vector<float> key_scales;    ///< of 128 keys each
  std::vector<float> value_scales;
  std::vector<float> value_mean;
  std::vector<float> corrections;  ///< none, or batch x query heads x blocks x padded keys
  std::vector<float> sinks;
  std::vector<std::int32_t> query_lengths{70, 33};
  std::vector<std::int32_t> key_lengths{150, 37};
  std::vector<std::int32_t> counts;  ///< none, or how many tiles the list of each block of queries has
  std::vector<std::int32_t> tiles;
  std::int64_t left = all_keys;
  std::int64_t right = all_keys;
  std::vector<float> results;
  std::vector<float> log_sum_exp;

  coded_heads() {
    for (std::int64_t i = 0; i < 2 * 2 * 128 * 40; ++i) {
      queries.push_back(code(1, i));
    }
    for (std::int64_t i = 0; i < 2 * 256 * 40; ++i) {
      keys.push_back(code(2, i));
      values.push_back(value_code(code(3, i)));
    }
    for (std::int64_t i = 0; i < 2 * 2 * 8; ++i) {
      query_scales.push_back(0.002F * static_cast<float>(1 + i % 3));
    }
    key_scales = {0.02F, 0.01F, 0.015F, 0.02F};
    for (std::int64_t i = 0; i < 2 * 40; ++i) {
      value_scales.push_back(0.01F * static_cast<float>(1 + i % 4));
      value_mean.push_back(0.1F * static_cast<float>(i % 7 - 3));
    }
    results.assign(2 * 2 * 70 * 40, -777.0F);
    log_sum_exp.assign(2 * 2 * 70, -777.0F);
  }
  static std::int8_t code(std::uint64_t seed, std::int64_t i) {
    return static_cast<std::int8_t>(testing::hash(seed, static_cast<std::uint64_t>(i)) % 255 - 127);
  }
  static code_type value_code(std::int8_t code) {
    if constexpr (std::is_same_v<code_type, std::int8_t>) {
      return code;
    } else {
      return store<code_type>(static_cast<float>(code));
    }
  }
  static double number(std::int8_t code) { return code; }
  static double number(float16 code) { return double{load(code)}; }

  [[nodiscard]] quantized_value_heads<code_type> coded_values() {
    return {{values.data(), {2, 1, 2, 40, 128}}, {value_scales.data(), {2, 1, 40}}, {value_mean.data(), {2, 1, 40}}};
  }
  [[nodiscard]] program_type program() {
    quantized_queries<std::int8_t> q{{queries.data(), {2, 2, 128, 40}}, {query_scales.data(), {2, 2, 8}}};
    if (!corrections.empty()) {
      q.corrections = {corrections.data(), {2, 2, 1, 256}};
    }
    attention_block_list list;
    if (!counts.empty()) {
      list = {{counts.data(), {2, 2, 2}}, {tiles.data(), {2, 2, 2, 2}}};
    }
    attention_writer<Method, float> const writer{
        shape, {}, {value_scales.data(), {2, 1, 40}}, {value_mean.data(), {2, 1, 40}}, query_lengths,
        sinks, {}, {results.data(), {2, 2, 70, 40}},  {log_sum_exp.data(), {2, 2, 70}}};
    return {{shape,
             q,
             {{keys.data(), {2, 1, 256, 40}}, {key_scales.data(), {2, 1, 2}}},
             coded_values(),
             query_lengths,
             key_lengths,
             left,
             right,
             writer,
             {}},
            list,
            {}};
  }
  template <class Executor>
  void run(Executor const& exec) {
    auto const made = program();
    exec.run(made, made.groups());
  }

  /// A score in double, natural; minus infinity where it is masked.
  [[nodiscard]] double score(std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t key) const {
    auto const at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    attention_mask const mask{query_lengths[at(sequence)], key_lengths[at(sequence)], left, right};
    key_interval const seen = mask.of(query);
    bool is_listed = counts.empty();
    std::int64_t const block = (sequence * 2 + head) * 2 + query / 64;
    for (std::int64_t i = 0; !is_listed && i < counts[at(block)]; ++i) {
      is_listed = is_listed || tiles[at(2 * block + i)] == key / 128;
    }
    if (key < seen.first || key >= seen.end || !is_listed) {
      return -infinite;
    }
    std::int8_t const* const own = queries.data() + ((sequence * 2 + head) * 128 + query) * 40;
    std::int8_t const* const other = keys.data() + (sequence * 256 + key) * 40;
    double sum = std::inner_product(own, own + 40, other, 0.0);
    sum *= double{query_scales[at((sequence * 2 + head) * 8 + query / 16)]} *
           double{key_scales[at(sequence * 2 + key / 128)]};
    sum += corrections.empty() ? 0.0 : double{corrections[at((sequence * 2 + head) * 256 + value_slot(key))]};
    return sum * std::log(2.0) + double{Bias{}(sequence, head, query, key)};
  }
  /// The largest errors of every third row: of results relative to the largest value, and of log-sum-exps.
  struct errors {
    double of_results = 0;
    double of_sums = 0;
  };
  [[nodiscard]] errors error() {
    errors worst;
    for (std::int64_t row = 0; row < 2 * 2 * 70; row += 3) {
      compare(row / 140, row / 70 % 2, row % 70, worst);
    }
    return worst;
  }
  void compare(std::int64_t sequence, std::int64_t head, std::int64_t query, errors& worst) {
    std::vector<double> scores;
    double largest = sinks.empty() ? -infinite : double{sinks[static_cast<std::size_t>(head)]};
    for (std::int64_t key = 0; key < 150; ++key) {
      scores.push_back(score(sequence, head, query, key));
      largest = std::max(largest, scores.back());
    }
    auto const row = static_cast<std::size_t>((sequence * 2 + head) * 70 + query);
    bool const is_empty = *std::max_element(scores.begin(), scores.end()) == -infinite;
    double sum = sinks.empty() || query >= query_lengths[static_cast<std::size_t>(sequence)]
                     ? 0.0
                     : std::exp(double{sinks[static_cast<std::size_t>(head)]} - largest);
    auto const all_values = coded_values();
    std::vector<double> totals(40);
    for (std::int64_t key = 0; key < 150 && !is_empty; ++key) {
      double const weight = std::exp(scores[static_cast<std::size_t>(key)] - largest);
      sum += weight;
      if (weight == 0.0) {
        continue;  // of masked keys, mostly
      }
      for (std::int64_t c = 0; c < 40; ++c) {
        auto const channel = static_cast<std::size_t>(sequence * 40 + c);
        double const value = number(all_values.code(sequence, 0, key, c)) * double{value_scales[channel]};
        totals[static_cast<std::size_t>(c)] += weight * (value + double{value_mean[channel]});
      }
    }
    for (std::size_t c = 0; c < 40; ++c) {
      double const expected = is_empty ? 0.0 : totals[c] / sum;
      worst.of_results = std::max(worst.of_results, std::fabs(double{results[40 * row + c]} - expected) / 5.4);
    }
    double const found = double{log_sum_exp[row]};
    double const expected = sum > 0 ? largest + std::log(sum) : -infinite;
    worst.of_sums = std::max(worst.of_sums, found == expected ? 0.0 : std::fabs(found - expected));
  }
};

/// Runs the program, and checks that it is within the rounding of fp16.
template <class Heads, class Executor>
void check_coded_heads(Heads& heads, Executor const& exec) {
  heads.run(exec);
  auto const found = heads.error();
  CHECK(found.of_results < 1e-3);
  CHECK(found.of_sums < 1e-5);
}

}  // namespace tessera_test
