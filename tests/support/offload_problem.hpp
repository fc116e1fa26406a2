// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sequences for offloaded caches: data like a model's, a cache on the host, and dense attention in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/testing/generators.hpp>

#include "support/double_rows.hpp"

namespace tessera_test {

/// One sequence: queries, keys and values of heads x tokens x channels each, queries and keys before their rotation.
template <class T>
struct offload_sequence {
  std::int64_t tokens;
  std::vector<T> queries;
  std::vector<T> keys;
  std::vector<T> values;
};

/// An embedding that rotates all channels of heads of `Channels` channels, for up to 4096 tokens.
template <int Channels = 16>
tessera::rotary_embedding embedding() {
  static tessera::rotary_tables const made(tessera::rotary_frequencies(10000.0, Channels), 4096);
  return made.embedding(tessera::rotary_pairs::halves);
}

struct offload_heads {
  std::int64_t query_heads;
  std::int64_t key_heads;
  std::int64_t channels;
};

/// Queries, keys and values of steps, each with all heads of a step, one after the other.
template <class T>
struct offload_rows {
  std::vector<T> queries;
  std::vector<T> keys;
  std::vector<T> values;

  /// Adds a step with the token at `position` of a sequence.
  void add(offload_heads const& heads, offload_sequence<T> const& s, std::int64_t position) {
    append(queries, s, s.queries, {heads.query_heads, heads.channels}, position);
    append(keys, s, s.keys, {heads.key_heads, heads.channels}, position);
    append(values, s, s.values, {heads.key_heads, heads.channels}, position);
  }

 private:
  struct extents {
    std::int64_t heads;
    std::int64_t channels;
  };
  static void append(std::vector<T>& to, offload_sequence<T> const& s, std::vector<T> const& from, extents const& n,
                     std::int64_t position) {
    for (std::int64_t head = 0; head < n.heads; ++head) {
      auto const first = from.begin() + static_cast<std::ptrdiff_t>((head * s.tokens + position) * n.channels);
      to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(n.channels));
    }
  }
};

/// Makes coefficients of tokens in a few directions, of which each token keeps the part `persistence` of its
/// predecessor's, and some noise.
template <class T>
std::vector<T> make_heads(std::int64_t heads, std::int64_t tokens, std::int64_t channels, std::uint64_t seed,
                          double noise, double persistence) {
  using tessera::testing::gauss;
  constexpr std::size_t directions = 12;
  auto const width = static_cast<std::size_t>(heads * channels);
  double const news = std::sqrt(1 - persistence * persistence);
  std::vector<double> mixture(width * directions);
  for (std::size_t i = 0; i < mixture.size(); ++i) {
    mixture[i] = double{gauss().value(77, i)} / std::sqrt(static_cast<double>(directions));
  }
  std::vector<double> state(directions);
  std::vector<T> made(width * static_cast<std::size_t>(tokens));
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    for (std::size_t k = 0; k < directions; ++k) {
      double const own = double{gauss().value(seed, t * directions + k)};
      state[k] = t == 0 ? own : persistence * state[k] + news * own;
    }
    for (std::size_t i = 0; i < width; ++i) {
      double value = noise * double{gauss().value(seed + 1, t * width + i)};
      for (std::size_t k = 0; k < directions; ++k) {
        value += state[k] * mixture[i * directions + k];
      }
      auto const n = static_cast<std::size_t>(channels);
      made[(i / n * static_cast<std::size_t>(tokens) + t) * n + i % n] = tessera::store<T>(static_cast<float>(value));
    }
  }
  return made;
}

/// Makes a sequence whose queries are like its keys, and change faster.
template <class T>
offload_sequence<T> make_sequence(offload_heads const& n, std::int64_t tokens, std::uint64_t seed,
                                  double persistence = 0.9) {
  return {tokens, make_heads<T>(n.query_heads, tokens, n.channels, seed + 10, 0.7, persistence),
          make_heads<T>(n.key_heads, tokens, n.channels, seed + 20, 0.3, persistence),
          make_heads<T>(n.key_heads, tokens, n.channels, seed + 30, 1.0, persistence)};
}

/// The keys of a sequence after their rotation, and its values, in double: key heads x tokens x channels each.
template <class T>
struct dense_operands {
  std::int64_t tokens;  ///< those up to the last one that is attended to
  std::vector<double> keys;
  std::vector<double> values;

  dense_operands(offload_heads const& n, offload_sequence<T> const& s, std::int64_t count,
                 tessera::rotary_embedding const& rotary)
      : tokens(count) {
    keys.reserve(static_cast<std::size_t>(n.key_heads * tokens * n.channels));
    values.reserve(keys.capacity());
    for (std::int64_t head = 0; head < n.key_heads; ++head) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        add_rotated(keys, n, s.tokens, s.keys, head, t, rotary);
        for (std::int64_t c = 0; c < n.channels; ++c) {
          auto const at = static_cast<std::size_t>((head * s.tokens + t) * n.channels + c);
          values.push_back(double{tessera::load(s.values[at])});
        }
      }
    }
  }

  /// Appends a row of `heads` to `rows`, after its rotation.
  static void add_rotated(std::vector<double>& rows, offload_heads const& n, std::int64_t all_tokens,
                          std::vector<T> const& heads, std::int64_t head, std::int64_t token,
                          tessera::rotary_embedding const& rotary) {
    tessera::view<T const, 2> const of_head(heads.data() + head * all_tokens * n.channels, {all_tokens, n.channels});
    auto const row = tessera::plain_keys<T>{of_head}.at(token);
    for (std::int64_t c = 0; c < n.channels; ++c) {
      T const stored = tessera::rotated<T>(rotary, token, c, row);
      rows.push_back(static_cast<double>(tessera::load(stored)));
    }
  }
};

/// Attention of the token at `position` over the tokens up to it, or those for which attended(key head, token) is true,
/// in double, for all heads: query heads x channels.
template <class T>
std::vector<double> dense_attention(offload_heads const& n, offload_sequence<T> const& s, dense_operands<T> const& with,
                                    std::int64_t position, tessera::rotary_embedding const& rotary, double scale = 0,
                                    std::vector<double>* log_sum_exp = nullptr,
                                    std::function<bool(std::int64_t, std::int64_t)> const& attended = {}) {
  std::vector<double> result(static_cast<std::size_t>(n.query_heads * n.channels));
  double const by = scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(n.channels));
  std::int64_t const group = n.query_heads / n.key_heads;
  for (std::int64_t h = 0; h < n.query_heads; ++h) {
    std::int64_t const kh = h / group;
    double const* const keys = with.keys.data() + kh * with.tokens * n.channels;
    double const* const values = with.values.data() + kh * with.tokens * n.channels;
    double* const own = result.data() + h * n.channels;
    std::vector<double> query;
    dense_operands<T>::add_rotated(query, n, s.tokens, s.queries, h, position, rotary);
    std::vector<double> scores;
    double largest = -1e300;
    for (std::int64_t t = 0; t <= position; ++t) {
      bool const is_seen = !attended || attended(kh, t);
      scores.push_back(is_seen ? by * row_product(query.data(), keys + t * n.channels, n.channels) : -1e300);
      largest = std::max(largest, scores.back());
    }
    double sum = 0;
    for (std::int64_t t = 0; t <= position; ++t) {
      double const weight = std::exp(scores[static_cast<std::size_t>(t)] - largest);
      sum += weight;
      add_row(own, weight, values + t * n.channels, n.channels);
    }
    for (std::int64_t c = 0; c < n.channels; ++c) {
      own[c] /= sum;
    }
    if (log_sum_exp != nullptr) {
      log_sum_exp->push_back(largest + std::log(sum));
    }
  }
  return result;
}
template <class T>
std::vector<double> dense_attention(offload_heads const& n, offload_sequence<T> const& s, std::int64_t position,
                                    tessera::rotary_embedding const& rotary, double scale = 0,
                                    std::vector<double>* log_sum_exp = nullptr,
                                    std::function<bool(std::int64_t, std::int64_t)> const& attended = {}) {
  dense_operands<T> const with(n, s, position + 1, rotary);
  return dense_attention(n, s, with, position, rotary, scale, log_sum_exp, attended);
}

/// A cache on the host with its own memory, which is full of garbage at first.
template <class Method, class T>
class host_cache {
 public:
  using cache_type = typename Method::template cache_type<T>;

  host_cache(offload_heads const& heads, std::vector<std::int64_t> tokens, tessera::rotary_embedding const& rotary,
             tessera::offload_options const& options = {}, typename Method::selector_type const& selector = {},
             typename Method::key_store_type const& keys = {})
      : heads_(heads),
        plan_(Method::template plan<T>(tessera::cpu{},
                                       {heads.query_heads, heads.key_heads, heads.channels, std::move(tokens)}, options,
                                       selector, keys)),
        device_(plan_.device.bytes()),
        host_(plan_.host.bytes()),
        prompt_(Method::plan_prefill(tessera::cpu{}, plan_).bytes()),
        step_(Method::plan_decode(tessera::cpu{}, plan_).bytes()),
        cache_(make(rotary)) {}

  /// Caches the first `count` tokens of a sequence in pieces.
  template <class Executor>
  void prefill(Executor const& exec, std::int64_t sequence, offload_sequence<T> const& s, std::int64_t count,
               std::int64_t piece = 0) {
    tessera::side_queue<Executor> const side(exec, 1);
    tessera::workspace const space(plan_.prompt, prompt_.view());
    auto const keys = part(s, s.keys, 0, count);
    auto const values = part(s, s.values, 0, count);
    if (piece == 0) {
      Method::prefill(exec, side, cache_, sequence, keys, values, space);
      return;
    }
    auto prompt = Method::begin(exec, cache_, sequence, space);
    for (std::int64_t first = 0; first < count; first += piece) {
      std::int64_t const taken = std::min(piece, count - first);
      Method::take(exec, side, cache_, prompt, keys.slice(1, first, taken), values.slice(1, first, taken), space);
    }
    Method::finish(exec, side, cache_, prompt, keys, values, space);
  }

  /// A step with the token at `position` of each sequence; gives the steps' results, query heads x channels each.
  template <class Executor>
  std::vector<float> decode(Executor const& exec, std::vector<offload_sequence<T> const*> const& all,
                            std::vector<std::int64_t> const& positions, std::vector<std::int32_t> const& named = {},
                            std::vector<float>* log_sum_exp = nullptr, tessera::chunk_lists const& given = {}) {
    auto const steps = static_cast<std::int64_t>(all.size());
    offload_rows<T> rows;
    for (std::size_t i = 0; i < all.size(); ++i) {
      rows.add(heads_, *all[i], positions[i]);
    }
    std::vector<float> result(static_cast<std::size_t>(steps * heads_.query_heads * heads_.channels), -77.0F);
    tessera::offload_tokens<T> in{{rows.queries.data(), {steps, heads_.query_heads, heads_.channels}},
                                  {rows.keys.data(), {steps, heads_.key_heads, heads_.channels}},
                                  {rows.values.data(), {steps, heads_.key_heads, heads_.channels}}};
    in.given = given;
    if (!named.empty()) {
      in.sequences = named;
    }
    tessera::offload_outputs<float> out{{result.data(), {steps, heads_.query_heads, heads_.channels}}};
    if (log_sum_exp != nullptr) {
      log_sum_exp->assign(static_cast<std::size_t>(steps * heads_.query_heads), -77.0F);
      out.log_sum_exp = {log_sum_exp->data(), {steps, heads_.query_heads}};
    }
    tessera::side_queue<Executor> const side(exec, 1);
    Method::decode(exec, side, cache_, in, out, tessera::workspace(plan_.step, step_.view()));
    return result;
  }

  [[nodiscard]] auto const& plan() const { return plan_; }
  [[nodiscard]] auto const& memory() const { return cache_.memory; }
  [[nodiscard]] cache_type const& cache() const { return cache_; }
  /// The memory that the latest step left.
  [[nodiscard]] tessera::offload_step<T> step(std::int64_t steps) {
    return plan_.step_of(tessera::workspace(plan_.step, step_.view()), steps, {});
  }
  /// All bytes of the cache but those in the host's store.
  [[nodiscard]] std::vector<std::byte> device_bytes() const { return {device_.begin(), device_.end()}; }
  void set_device_bytes(std::vector<std::byte> const& bytes) { std::copy(bytes.begin(), bytes.end(), device_.begin()); }
  [[nodiscard]] tessera::workspace prompt_space() { return {plan_.prompt, prompt_.view()}; }

 private:
  cache_type make(tessera::rotary_embedding const& rotary) {
    for (auto* block : {&device_, &host_, &prompt_, &step_}) {
      std::fill(block->begin(), block->end(), std::byte{0xfb});
    }
    return Method::open(tessera::cpu{}, plan_, device_.view(), host_.view(), rotary);
  }
  [[nodiscard]] tessera::view<T const, 3> part(offload_sequence<T> const& s, std::vector<T> const& heads,
                                               std::int64_t first, std::int64_t count) const {
    tessera::view<T const, 3> const all(heads.data(), {heads_.key_heads, s.tokens, heads_.channels});
    return all.slice(1, first, count);
  }

  offload_heads heads_;
  typename Method::template plan_type<T> plan_;
  tessera::buffer<std::byte> device_;
  tessera::buffer<std::byte> host_;
  tessera::buffer<std::byte> prompt_;
  tessera::buffer<std::byte> step_;
  cache_type cache_;
};

}  // namespace tessera_test
