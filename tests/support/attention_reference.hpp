// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention by the formula, in double, with all scores in memory, and its problems, results and measures of error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/attention.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/testing/generators.hpp>

#include "support/double_rows.hpp"

namespace tessera_test {

inline std::size_t as_size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

/// Inputs of attention, in vectors, batch x heads x tokens x channels.
template <class T>
struct attention_problem {
  tessera::attention_shape shape;
  std::vector<T> queries;
  std::vector<T> keys;
  std::vector<T> values;
  tessera::attention_options options = {};
  std::vector<std::int32_t> query_lengths = {};
  std::vector<std::int32_t> key_lengths = {};
  std::vector<float> sinks = {};
  std::vector<std::int32_t> list_counts = {};  ///< tiles of keys in the list of each block of 64 queries of each head
  std::vector<std::int32_t> list_tiles = {};   ///< the lists of tiles, each with the same room

  /// How many tiles each list has room for.
  std::int64_t list_room() const {
    return static_cast<std::int64_t>(list_tiles.size() / std::max(list_counts.size(), std::size_t{1}));
  }
  tessera::attention_inputs<T> inputs() const {
    tessera::attention_shape const& s = shape;
    tessera::attention_inputs<T> in{{queries.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                    {keys.data(), {s.batch, s.key_heads, s.keys, s.channels}},
                                    {values.data(), {s.batch, s.key_heads, s.keys, s.channels_of_values()}}};
    if (!query_lengths.empty()) {
      in.query_lengths = query_lengths;
    }
    if (!key_lengths.empty()) {
      in.key_lengths = key_lengths;
    }
    if (!sinks.empty()) {
      in.sinks = sinks;
    }
    if (!list_counts.empty()) {
      std::int64_t const blocks = tessera::divide_up(s.queries, std::int64_t{64});
      in.block_list = {{list_counts.data(), {s.batch, s.query_heads, blocks}},
                       {list_tiles.data(), {s.batch, s.query_heads, blocks, list_room()}}};
    }
    return in;
  }
};

template <class T, class Generator>
std::vector<T> attention_samples(Generator const& generator, std::uint64_t seed, std::int64_t heads,
                                 std::int64_t values) {
  std::vector<T> made(as_size(heads * values));
  for (std::int64_t head = 0; head < heads; ++head) {
    tessera::testing::fill(generator, seed + 1000 * static_cast<std::uint64_t>(head), made.data() + head * values,
                           as_size(values));
  }
  return made;
}

/// Makes a problem; each head has its own seed.
template <class T, class Queries, class Keys, class Values>
attention_problem<T> make_attention_problem(tessera::attention_shape const& s, Queries const& queries, Keys const& keys,
                                            Values const& values, std::uint64_t seed = 1) {
  return {s, attention_samples<T>(queries, seed, s.batch * s.query_heads, s.queries * s.channels),
          attention_samples<T>(keys, seed + 1, s.batch * s.key_heads, s.keys * s.channels),
          attention_samples<T>(values, seed + 2, s.batch * s.key_heads, s.keys * s.channels_of_values())};
}

template <class T>
attention_problem<T> make_attention_problem(tessera::attention_shape const& s, std::uint64_t seed = 1) {
  tessera::testing::gauss const normal;
  auto problem = make_attention_problem<T>(s, normal, normal, normal, seed);
  auto const move = [](std::vector<T>& rows, std::int64_t channels, float by) {  // some channels lie away from zero
    for (std::size_t i = 0; i < rows.size(); ++i) {
      float const away = i % as_size(channels) % 7 == 3 ? by : 0.0F;
      rows[i] = tessera::store<T>(static_cast<float>(tessera::load(rows[i])) + away);
    }
  };
  move(problem.keys, s.channels, 5.0F);
  move(problem.values, s.channels_of_values(), -2.5F);
  return problem;
}

struct attention_results {
  std::vector<double> result;
  std::vector<double> log_sum_exp;
};

/// The function that gives the bias of a score: (sequence, head, query, key).
using reference_bias = std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>;

/// Attention by the formula. Q, K: rows of doubles. Queries that see no key give zeros and minus infinity.
struct reference_attention {
  tessera::attention_shape shape;
  std::vector<double> queries;
  std::vector<double> keys;
  std::vector<double> values;
  /// What products of each row of queries are multiplied by, so that those of codes are exact; empty: nothing.
  std::vector<double> factors = {};

  /// The product of a row of queries and a row of keys.
  double product(std::int64_t query_row, std::int64_t key_row) const {
    double const sum = row_product(queries.data() + query_row * shape.channels, keys.data() + key_row * shape.channels,
                                   shape.channels);
    return factors.empty() ? sum : factors[as_size(query_row)] * sum;
  }
  void row(attention_results& out, std::int64_t at, std::int64_t key_row, std::int64_t first, std::int64_t end,
           double scale, std::function<double(std::int64_t)> const& bias, double sink) const {
    std::int64_t const channels = shape.channels_of_values();
    double* const result = out.result.data() + at * channels;
    std::vector<double> scores;
    double largest = sink;
    for (std::int64_t key = first; key < end; ++key) {
      scores.push_back(scale * product(at, key_row + key) + bias(key));
      largest = std::max(largest, scores.back());
    }
    if (largest == -std::numeric_limits<double>::infinity()) {
      out.log_sum_exp[as_size(at)] = largest;
      return;
    }
    double total = std::exp(sink - largest);
    for (std::int64_t key = first; key < end; ++key) {
      double const weight = std::exp(scores[as_size(key - first)] - largest);
      total += weight;
      add_row(result, weight, values.data() + (key_row + key) * channels, channels);
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      result[c] /= total;
    }
    out.log_sum_exp[as_size(at)] = largest + std::log(total);
  }
};

template <class T>
std::vector<double> as_doubles(std::vector<T> const& stored) {
  std::vector<double> values;
  values.reserve(stored.size());
  for (T const& value : stored) {
    values.push_back(static_cast<double>(tessera::load(value)));
  }
  return values;
}

/// Attention by the formula with the operands of `with`, which need not be those of the problem.
template <class T>
attention_results attention_by_formula(attention_problem<T> const& p, reference_attention const& with,
                                       reference_bias const& bias = {}) {
  tessera::attention_shape const& s = p.shape;
  attention_results out{
      std::vector<double>(as_size(s.batch * s.query_heads * s.queries * s.channels_of_values())),
      std::vector<double>(as_size(s.batch * s.query_heads * s.queries), -std::numeric_limits<double>::infinity())};
  double const scale = p.options.softmax_scale > 0 ? static_cast<double>(p.options.softmax_scale)
                                                   : 1.0 / std::sqrt(static_cast<double>(s.channels));
  for (std::int64_t i = 0; i < s.batch * s.query_heads * s.queries; ++i) {
    std::int64_t const query = i % s.queries;
    std::int64_t const head = i / s.queries % s.query_heads;
    std::int64_t const sequence = i / s.queries / s.query_heads;
    std::int64_t const queries = p.query_lengths.empty() ? s.queries : p.query_lengths[as_size(sequence)];
    std::int64_t const keys = p.key_lengths.empty() ? s.keys : p.key_lengths[as_size(sequence)];
    if (query >= queries) {
      continue;
    }
    std::int64_t const own = query + keys - queries;
    std::int64_t const right = p.options.is_causal ? 0 : p.options.window_right;
    std::int64_t const first = p.options.window_left < 0 ? 0 : std::max(own - p.options.window_left, std::int64_t{0});
    std::int64_t const end = right < 0 ? keys : std::min(own + right + 1, keys);
    std::int64_t const key_head = head / (s.query_heads / s.key_heads);
    double const sink =
        p.sinks.empty() ? -std::numeric_limits<double>::infinity() : static_cast<double>(p.sinks[as_size(head)]);
    with.row(
        out, i, (sequence * s.key_heads + key_head) * s.keys, first, std::max(first, end), scale,
        [&](std::int64_t key) { return bias ? bias(sequence, head, query, key) : 0.0; }, sink);
  }
  return out;
}

template <class T>
attention_results attention_by_formula(attention_problem<T> const& p, reference_bias const& bias = {}) {
  return attention_by_formula(p, {p.shape, as_doubles(p.queries), as_doubles(p.keys), as_doubles(p.values)}, bias);
}

/// The results of an implementation, written into memory full of garbage.
template <class Attention, class Result, class Executor, class T, class Bias = tessera::no_bias>
attention_results run_attention_problem(Executor const& exec, attention_problem<T> const& p, Bias const& bias = {}) {
  tessera::attention_shape const& s = p.shape;
  std::vector<Result> result(as_size(s.batch * s.query_heads * s.queries * s.channels_of_values()),
                             tessera::store<Result>(-77.0F));
  std::vector<float> lse(as_size(s.batch * s.query_heads * s.queries), -77.0F);
  auto const plan = Attention::plan_forward(exec, s);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  for (std::byte& byte : memory) {
    byte = std::byte{0xa5};
  }
  tessera::attention_outputs<Result> const out{
      {result.data(), {s.batch, s.query_heads, s.queries, s.channels_of_values()}},
      {lse.data(), {s.batch, s.query_heads, s.queries}}};
  Attention::forward(exec, p.inputs(), p.options, out, tessera::workspace(plan, memory),
                     tessera::attention_functions<Bias>{bias});
  exec.wait();
  return {as_doubles(result), std::vector<double>(lse.begin(), lse.end())};
}

/// The paper's measures of error, over all elements.
struct attention_error {
  double cosine;
  double relative_l1;
  double rmse;
};

inline attention_error error_of(std::vector<double> const& found, std::vector<double> const& expected) {
  double product = 0;
  double of_found = 0;
  double of_expected = 0;
  double apart = 0;
  double size = 0;
  double squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    product += found[i] * expected[i];
    of_found += found[i] * found[i];
    of_expected += expected[i] * expected[i];
    apart += std::fabs(found[i] - expected[i]);
    size += std::fabs(expected[i]);
    squares += (found[i] - expected[i]) * (found[i] - expected[i]);
  }
  return {product / std::sqrt(of_found * of_expected), apart / size,
          std::sqrt(squares / static_cast<double>(expected.size()))};
}

/// The largest difference; infinities and NaNs must be at the same indices.
inline double farthest(std::vector<double> const& found, std::vector<double> const& expected) {
  double most = found.size() == expected.size() ? 0.0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    bool const is_same = found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i]));
    double const apart = std::fabs(found[i] - expected[i]);
    most = is_same ? most : std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(most, apart);
  }
  return most;
}

}  // namespace tessera_test
