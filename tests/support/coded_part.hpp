// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A cache of one part, with any merger and codec, and what it should restore by its quantizers alone.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/attention_reference.hpp"
#include "support/cache_problem.hpp"

namespace tessera_test {

/// A cache of one part and one sequence, with the lists that an engine keeps beside it.
template <class Cache>
struct coded_part {
  using T = typename Cache::value_type;

  cpu exec{.threads = 1};
  cache_extents extents;
  Cache cache;
  std::vector<std::int32_t> blocks;
  std::vector<std::int32_t> lengths{0};
  std::vector<std::int32_t> pages{0};

  template <class... State>
  explicit coded_part(std::int64_t heads, std::int64_t channels, cache_layers const& layers = Cache::single(),
                      std::int64_t window = 0, State const&... state)
      : extents{1, 512, 8, heads, channels, window}, cache(exec, extents, {{layers}, state...}), blocks(8) {
    std::iota(blocks.rbegin(), blocks.rend(), 0);  // in descending order, so that nothing may rely on neighbours
  }

  cache_sequences sequences() const { return {{blocks.data(), {1, 8}}, {}, lengths, pages, 1}; }

  /// Appends tokens at once.
  void append(layer_pair<T> const& data, std::int64_t first, std::int64_t count) {
    lengths[0] += static_cast<std::int32_t>(count);
    auto const plan = cache.plan_append(exec, {1, count});
    buffer<std::byte> memory(exec, plan.bytes());
    cache.append(exec, 0, data.inputs(first, count), sequences(), {count, {}}, workspace(plan, memory));
    cache.advance(exec, sequences(), pages, count);
    exec.wait();
  }
  /// Writes a token and seals what is complete, as a model decodes.
  void step(layer_pair<T> const& data, std::int64_t token) {
    lengths[0] += 1;
    for (int layer = 0; layer < cache.layers(); ++layer) {
      cache.write(exec, layer, data.heads_of(layer, key_part, token, 1), data.heads_of(layer, value_part, token, 1),
                  sequences(), {1, {}});
    }
    auto const plan = cache.plan_seal(exec, 1);
    buffer<std::byte> memory(exec, plan.bytes());
    cache.seal(exec, 0, sequences(), workspace(plan, memory));
    cache.advance(exec, sequences(), pages);
    exec.wait();
  }

  /// Keys or values as the cache restores them: head x token x channel.
  std::vector<float> restored(int layer, int which) const {
    std::int64_t const extent[4] = {1, extents.heads, lengths[0], extents.channels};
    std::vector<float> both[2];
    for (auto& list : both) {
      list.assign(as_size(extent[1] * extent[2] * extent[3]), -77.0F);
    }
    cache.restore(exec, layer, sequences(), head_view<float>(both[0].data(), {1, extent[1], extent[2], extent[3]}),
                  head_view<float>(both[1].data(), {1, extent[1], extent[2], extent[3]}));
    exec.wait();
    return both[which];
  }
  /// Attention of two query heads for each key head.
  std::vector<float> attended(int layer, std::vector<T> const& queries, std::int64_t count) const {
    head_view<T const> const q(queries.data(), {1, 2 * extents.heads, count, extents.channels});
    auto const plan = cache.plan_attend(exec, cache.shape_of(q, sequences()));
    buffer<std::byte> memory(exec, plan.bytes());
    std::vector<float> result(queries.size());
    attention_outputs<float> const out{{result.data(), {1, 2 * extents.heads, count, extents.channels}}};
    cache.attend(exec, layer, q, sequences(), {.is_causal = true}, out, workspace(plan, memory));
    exec.wait();
    return result;
  }
  /// The same by the formula in double, over given keys and values.
  std::vector<double> attended_by_formula(std::vector<T> const& queries, std::int64_t count,
                                          std::vector<double> const& keys, std::vector<double> const& values) const {
    attention_problem<T> p{{1, 2 * extents.heads, extents.heads, count, lengths[0], extents.channels}, queries, {}, {}};
    p.options.is_causal = true;
    return attention_by_formula(p, {p.shape, as_doubles(queries), keys, values}).result;
  }
};

/// A list of values as a Quantizer codes and decodes them.
template <class Q>
std::vector<float> coded_alone(Q const& quantizer, std::vector<float> const& values) {
  auto range = quantizer.range().identity();
  for (float value : values) {
    quantizer.range().push(range, value);
  }
  auto const params = quantizer.fit(range);
  std::vector<float> decoded;
  for (float value : values) {
    decoded.push_back(quantizer.decode(quantizer.encode(value, params), params));
  }
  return decoded;
}

/// Keys or values, head x token x channel, of which the first `sealed` tokens are coded, each group by itself: a group
/// of keys is neighbouring tokens of a channel in a page, one of values is neighbouring channels of a token.
template <class Q, class T>
std::vector<float> coded_by_groups(Q const& quantizer, layer_pair<T> const& data, int layer, int which,
                                   std::int64_t sealed) {
  std::vector<float> found;
  for (T value : data.part[layer][which]) {
    found.push_back(load(value));
  }
  bool const are_keys = which == key_part;
  std::int64_t const in_a_row = are_keys ? 64 : data.channels;
  std::int64_t const group = Q::group == whole_tensor ? in_a_row : std::int64_t{Q::group};
  std::int64_t const stride = are_keys ? data.channels : 1;
  for (std::int64_t head = 0; head < data.heads; ++head) {
    for (std::int64_t i = 0; i < sealed * data.channels; ++i) {
      std::int64_t const index = are_keys ? i / data.channels : i % data.channels;
      if (index % group != 0) {
        continue;  // not the first of its group
      }
      std::vector<float> values;
      for (std::int64_t k = 0; k < group; ++k) {
        values.push_back(found[as_size(head * data.tokens * data.channels + i + k * stride)]);
      }
      values = coded_alone(quantizer, values);
      for (std::int64_t k = 0; k < group; ++k) {
        found[as_size(head * data.tokens * data.channels + i + k * stride)] = values[as_size(k)];
      }
    }
  }
  return found;
}

}  // namespace tessera_test
