// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Quantized attention on a GPU: problems in device memory, in any layout, and their results.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/attention.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.cuh"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/quantized_reference.hpp"

namespace tessera_test {

/// How heads lie in memory.
enum class head_layout {
  heads_first,
  tokens_first,  ///< heads of a token next to each other, and 8 unused elements behind each token
  shifted        ///< heads first, and rows that do not begin at multiples of 16 bytes
};

/// Heads on the device, with rubbish between them.
template <class T>
struct device_heads {
  std::int64_t extents[4];
  head_layout layout;
  tessera::buffer<T> memory;

  static constexpr T rubbish{0x7bc1};

  device_heads(tessera::cuda const& exec, std::int64_t const (&of)[4], head_layout in)
      : extents{of[0], of[1], of[2], of[3]}, layout(in), memory(exec, size()) {
    exec.copy(std::vector<T>(as_size(size()), rubbish), memory);
    exec.wait();
  }
  device_heads(tessera::cuda const& exec, std::int64_t const (&of)[4], head_layout in, std::vector<T> const& values)
      : device_heads(exec, of, in) {
    std::vector<T> all(as_size(size()), rubbish);
    auto const to = view_of(all.data());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
      at(to, i) = values[as_size(i)];
    }
    exec.copy(all, memory);
    exec.wait();
  }

  tessera::head_view<T> view() const { return view_of(const_cast<T*>(memory.data())); }

  /// The elements in the order heads_first. `is_clean`: nothing between them was written.
  std::vector<T> values(tessera::cuda const& exec, bool& is_clean) const {
    std::vector<T> all = to_host(exec, memory);
    auto const from = view_of(all.data());
    std::vector<T> found;
    for (std::int64_t i = 0; i < from.size(); ++i) {
      found.push_back(at(from, i));
      at(from, i) = rubbish;
    }
    is_clean = std::memcmp(all.data(), std::vector<T>(all.size(), rubbish).data(), all.size() * sizeof(T)) == 0;
    return found;
  }

 private:
  std::int64_t pitch() const { return extents[3] + (layout == head_layout::shifted ? 1 : 0); }
  std::int64_t size() const { return extents[0] * (extents[1] * pitch() + 8) * (extents[2] + 1) + 8; }
  tessera::head_view<T> view_of(T* data) const {
    if (layout == head_layout::tokens_first) {
      std::int64_t const token = extents[1] * extents[3] + 8;
      return {data, {extents[0], extents[1], extents[2], extents[3]}, {extents[2] * token, extents[3], token, 1}};
    }
    return {data + (layout == head_layout::shifted ? 3 : 0),
            {extents[0], extents[1], extents[2], extents[3]},
            {extents[1] * extents[2] * pitch(), extents[2] * pitch(), pitch(), 1}};
  }
  T& at(tessera::head_view<T> const& heads, std::int64_t i) const {
    std::int64_t const token = i / extents[3];
    std::int64_t const head = token / extents[2];
    return heads(head / extents[1], head % extents[1], token % extents[2], i % extents[3]);
  }
};

/// A problem's inputs on the device.
template <class T>
struct device_attention {
  device_heads<T> queries;
  device_heads<T> keys;
  device_heads<T> values;
  tessera::buffer<std::int32_t> query_lengths;
  tessera::buffer<std::int32_t> key_lengths;
  tessera::buffer<float> sinks;
  tessera::buffer<std::int32_t> list_counts;
  tessera::buffer<std::int32_t> list_tiles;

  device_attention(tessera::cuda const& exec, attention_problem<T> const& p, head_layout layout)
      : queries(exec, {p.shape.batch, p.shape.query_heads, p.shape.queries, p.shape.channels}, layout, p.queries),
        keys(exec, {p.shape.batch, p.shape.key_heads, p.shape.keys, p.shape.channels}, layout, p.keys),
        values(exec, {p.shape.batch, p.shape.key_heads, p.shape.keys, p.shape.channels_of_values()}, layout, p.values),
        query_lengths(to_device(exec, p.query_lengths)),
        key_lengths(to_device(exec, p.key_lengths)),
        sinks(to_device(exec, p.sinks)),
        list_counts(to_device(exec, p.list_counts)),
        list_tiles(to_device(exec, p.list_tiles)) {
    exec.wait();
  }
  tessera::attention_inputs<T> inputs() const {
    tessera::attention_inputs<T> in{queries.view(), keys.view(), values.view()};
    if (query_lengths.size() > 0) {
      in.query_lengths = query_lengths.view();
    }
    if (key_lengths.size() > 0) {
      in.key_lengths = key_lengths.view();
    }
    if (sinks.size() > 0) {
      in.sinks = sinks.view();
    }
    if (list_counts.size() > 0) {
      auto const& of = queries.extents;
      std::int64_t const blocks = tessera::divide_up(of[2], std::int64_t{64});
      std::int64_t const list_room = list_tiles.size() / list_counts.size();
      in.block_list = {{list_counts.data(), {of[0], of[1], blocks}},
                       {list_tiles.data(), {of[0], of[1], blocks, list_room}}};
    }
    return in;
  }
};

/// The whole workspace and the results.
struct device_attention_results {
  std::vector<std::byte> bytes;
  attention_results found;
  bool is_clean;
};

/// Runs attention in memory that begins as rubbish.
template <class Attention, class Result, class T, class Functions = tessera::attention_functions<>>
device_attention_results run_on_device(tessera::cuda const& exec, attention_problem<T> const& p,
                                       head_layout layout = head_layout::heads_first, bool with_lse = true,
                                       Functions const& functions = {}) {
  tessera::attention_shape const& s = p.shape;
  device_attention<T> const in(exec, p, layout);
  auto const plan = Attention::plan_forward(exec, s);
  auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
  device_heads<Result> const result(exec, {s.batch, s.query_heads, s.queries, s.channels_of_values()}, layout);
  auto const lse = to_device(exec, std::vector<float>(as_size(s.batch * s.query_heads * s.queries + 1), -77.0F));
  tessera::attention_outputs<Result> out{result.view()};
  if (with_lse) {
    out.log_sum_exp = {const_cast<float*>(lse.data()), {s.batch, s.query_heads, s.queries}};
  }
  Attention::forward(exec, in.inputs(), p.options, out, tessera::workspace(plan, memory), functions);
  device_attention_results results{to_host(exec, memory), {}, false};
  results.found.result = as_doubles(result.values(exec, results.is_clean));
  auto const lse_values = to_host(exec, lse);
  results.is_clean = results.is_clean && lse_values.back() == -77.0F;
  results.found.log_sum_exp.assign(lse_values.begin(), lse_values.end() - 1);
  return results;
}

/// How far the results of dense attention over four causal sequences that lie one behind the other are from attention
/// in double: infinity if something behind them was written. `bias`: what `functions` add to scores.
template <class Attention, class Functions = tessera::attention_functions<>>
double distance_of_packed(std::int64_t channels, Functions const& functions = {}, reference_bias const& bias = {}) {
  using tessera::bfloat16, tessera::head_view;
  constexpr std::int64_t total = 338;
  std::vector<std::int32_t> const lengths{200, 7, 0, 131};
  std::vector<std::int32_t> const starts{0, 200, 207, 207};
  auto const p = make_attention_problem<bfloat16>({1, 2, 2, total, total, channels});
  tessera::cuda exec;
  exec.options.refuses_slower_programs = true;
  auto const queries = to_device(exec, p.queries);
  auto const keys = to_device(exec, p.keys);
  auto const values = to_device(exec, p.values);
  auto const device_lengths = to_device(exec, lengths);
  auto const device_starts = to_device(exec, starts);
  auto result = to_device(exec, std::vector<bfloat16>(p.queries.size() + 8, tessera::store<bfloat16>(-77.0F)));
  auto const packed = [&](auto* from) {
    return head_view<std::remove_pointer_t<decltype(from)>>(from, {4, 2, 200, channels},
                                                            {0, total * channels, channels, 1});
  };
  tessera::attention_inputs<bfloat16> in{packed(std::as_const(queries).data()), packed(std::as_const(keys).data()),
                                         packed(std::as_const(values).data())};
  in.query_lengths = in.key_lengths = device_lengths.view();
  in.query_starts = in.key_starts = {device_starts.view(), total};
  auto const plan = Attention::plan_forward(exec, {4, 2, 2, 200, 200, channels});
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  Attention::forward(exec, in, {.is_causal = true}, tessera::attention_outputs<bfloat16>{packed(result.data())},
                     tessera::workspace(plan, memory), functions);
  auto const found = to_host(exec, result);
  double most = tessera::load(found.back()) == -77.0F ? 0.0 : std::numeric_limits<double>::infinity();
  for (std::size_t sequence = 0; sequence < 4; ++sequence) {
    std::int64_t const count = lengths[sequence];
    attention_problem<bfloat16> own{{1, 2, 2, count, count, channels}, {}, {}, {}, {.is_causal = true}};
    for (std::int64_t head = 0; head < 2; ++head) {
      std::int64_t const from = (head * total + starts[sequence]) * channels;
      std::int64_t const end = from + count * channels;
      own.queries.insert(own.queries.end(), p.queries.begin() + from, p.queries.begin() + end);
      own.keys.insert(own.keys.end(), p.keys.begin() + from, p.keys.begin() + end);
      own.values.insert(own.values.end(), p.values.begin() + from, p.values.begin() + end);
    }
    auto const expected = attention_by_formula(own, bias);
    for (std::int64_t i = 0; i < 2 * count * channels; ++i) {
      std::int64_t const row = i / channels / count * total + starts[sequence] + i / channels % count;
      double const value = tessera::load(found[as_size(row * channels + i % channels)]);
      double const apart = std::fabs(value - expected.result[as_size(i)]);
      most = apart <= most ? most : apart;
    }
  }
  return most;
}

/// Whether a region holds the same bytes on both sides; NaNs of floats are equal.
template <class T>
bool is_same(std::vector<std::byte> const& found, std::byte const* expected, tessera::region<T> where) {
  for (std::int64_t i = 0; i < where.count; ++i) {
    T a{};
    T b{};
    std::memcpy(&a, found.data() + where.offset + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(&b, expected + where.offset + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    bool same = std::memcmp(&a, &b, sizeof(T)) == 0;
    if constexpr (std::is_same_v<T, float>) {
      same = same || (std::isnan(a) && std::isnan(b));
    }
    if (!same) {
      return false;
    }
  }
  return true;
}

/// Checks that codes, scales and means are those of the host to the last bit; without keys, keys and values have none.
template <class Attention, class T>
void check_codes(std::vector<std::byte> const& found, attention_problem<T> const& p) {
  auto const made = make_operands<Attention>(tessera::cpu{}, p);
  typename Attention::regions const layout("test", p.shape);
  CHECK(is_same(found, made.memory.data(), layout.query_codes));
  CHECK(is_same(found, made.memory.data(), layout.query_scales));
  if (p.shape.keys == 0) {
    return;
  }
  CHECK(is_same(found, made.memory.data(), layout.key_mean));
  CHECK(is_same(found, made.memory.data(), layout.key_codes));
  CHECK(is_same(found, made.memory.data(), layout.key_scales));
  CHECK(is_same(found, made.memory.data(), layout.value_mean));
  CHECK(is_same(found, made.memory.data(), layout.value_scales));
  CHECK(is_same(found, made.memory.data(), layout.value_codes));
}

}  // namespace tessera_test
