// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The problem that attention is measured on, made on the device: normal queries, keys and values of bf16. With
/// offsets, for each head 6 % of the channels of keys lie 4 N(0, 1) away from zero, 6 % of those of queries 2 N(0, 1),
/// and all of those of values N(0, 1) / 2. Sequences may be shorter than their extent. It measures how far results are
/// from attention in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/attention.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/testing/generators.hpp>

#include "device.cuh"

namespace bench {

template <class Generator>
__global__ void fill_head(Generator generator, std::uint64_t seed, tessera::bfloat16* data, std::int64_t count) {
  std::int64_t const step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    data[i] = tessera::testing::sample<tessera::bfloat16>(generator, seed, static_cast<std::uint64_t>(i));
  }
}

/// Attention of one row for each block of threads, in double. `scores` has room for the keys of each row.
template <class Bias>
__global__ void attend_exactly(tessera::head_view<tessera::bfloat16 const> queries,
                               tessera::head_view<tessera::bfloat16 const> keys,
                               tessera::head_view<tessera::bfloat16 const> values, tessera::sequence_lengths lengths,
                               bool is_causal, Bias bias, std::int64_t const* rows, double* scores, double* out) {
  __shared__ double query[256];
  __shared__ double largest[128];
  __shared__ double total[128];
  std::int64_t const row = rows[blockIdx.x];
  std::int64_t const token = row % queries.extent(2);
  std::int64_t const head = row / queries.extent(2) % queries.extent(1);
  std::int64_t const sequence = row / queries.extent(2) / queries.extent(1);
  std::int64_t const channels = queries.extent(3);
  std::int64_t const key_head = head / (queries.extent(1) / keys.extent(1));
  std::int64_t const key_count = tessera::length_of(lengths, sequence, keys.extent(2));
  std::int64_t const query_count = tessera::length_of(lengths, sequence, queries.extent(2));
  std::int64_t const end = is_causal ? token + key_count - query_count + 1 : key_count;
  double* const own = scores + static_cast<std::int64_t>(blockIdx.x) * keys.extent(2);
  auto const lane = static_cast<std::int64_t>(threadIdx.x);
  for (std::int64_t c = lane; c < channels; c += 128) {
    query[c] = static_cast<double>(tessera::load(queries(sequence, head, token, c)));
  }
  __syncthreads();
  largest[lane] = -1e300;
  for (std::int64_t key = lane; key < end; key += 128) {
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      sum += query[c] * static_cast<double>(tessera::load(keys(sequence, key_head, key, c)));
    }
    own[key] = sum / sqrt(static_cast<double>(channels)) + static_cast<double>(bias(sequence, head, token, key));
    largest[lane] = fmax(largest[lane], own[key]);
  }
  __syncthreads();
  double most = -1e300;
  for (double const one : largest) {
    most = fmax(most, one);
  }
  total[lane] = 0;
  for (std::int64_t key = lane; key < end; key += 128) {
    own[key] = exp(own[key] - most);
    total[lane] += own[key];
  }
  __syncthreads();
  double all = 0;
  for (double const one : total) {
    all += one;
  }
  std::int64_t const value_channels = values.extent(3);
  for (std::int64_t c = lane; c < value_channels; c += 128) {
    double sum = 0;
    for (std::int64_t key = 0; key < end; ++key) {
      sum += own[key] * static_cast<double>(tessera::load(values(sequence, key_head, key, c)));
    }
    out[static_cast<std::int64_t>(blockIdx.x) * value_channels + c] = sum / all;
  }
}

enum class attention_data { with_offsets, normal };

struct attention_distance {
  double relative_l1;
  double cosine;
};

class attention_problem {
 public:
  /// lengths: the number of queries and keys of each sequence; if empty, all sequences are whole.
  attention_problem(tessera::attention_shape const& shape, bool is_causal, std::vector<std::int32_t> lengths = {},
                    attention_data data = attention_data::with_offsets)
      : shape_(shape), data_(data), lengths_(std::move(lengths)) {
    options_.is_causal = is_causal;
    check(cudaMemcpyAsync(device_lengths_.data(), lengths_.data(), lengths_.size() * sizeof(std::int32_t),
                          cudaMemcpyHostToDevice, memory_.stream()),
          "cudaMemcpyAsync");
    std::int64_t const of_values = shape.channels_of_values();
    fill(queries_, shape.batch * shape.query_heads, shape.queries * shape.channels, heads(shape.channels, 0.06, 2.0),
         1);
    fill(keys_, shape.batch * shape.key_heads, shape.keys * shape.channels, heads(shape.channels, 0.06, 4.0), 2);
    fill(values_, shape.batch * shape.key_heads, shape.keys * of_values, heads(of_values, 1.0, 0.5), 3);
    memory_.wait();
  }

  tessera::attention_shape const& shape() const { return shape_; }
  tessera::attention_options const& options() const { return options_; }
  attention_data data() const { return data_; }
  std::vector<std::int32_t> const& lengths() const { return lengths_; }
  tessera::cuda const& exec() const { return exec_; }
  device_memory& memory() { return memory_; }
  tessera::attention_inputs<tessera::bfloat16> inputs() const {
    tessera::attention_shape const& s = shape_;
    return {{queries_.data(), {s.batch, s.query_heads, s.queries, s.channels}},
            {keys_.data(), {s.batch, s.key_heads, s.keys, s.channels}},
            {values_.data(), {s.batch, s.key_heads, s.keys, s.channels_of_values()}},
            device_lengths(),
            device_lengths()};
  }
  /// The lengths in memory of the device; null if all sequences are whole.
  tessera::sequence_lengths device_lengths() const {
    return lengths_.empty() ? tessera::sequence_lengths{}
                            : tessera::sequence_lengths(device_lengths_.data(), {shape_.batch});
  }
  tessera::attention_outputs<tessera::bfloat16> outputs() const {
    tessera::attention_shape const& s = shape_;
    return {{result_.data(), {s.batch, s.query_heads, s.queries, s.channels_of_values()}}};
  }

  /// The operations: for each pair of a query and a key 2 for each of their channels and each channel of a value; half
  /// of the pairs if causal.
  double operations() const {
    tessera::attention_shape const& s = shape_;
    double pairs = 0;
    for (std::int64_t sequence = 0; sequence < s.batch; ++sequence) {
      pairs += static_cast<double>(length_of(sequence, s.queries)) * static_cast<double>(length_of(sequence, s.keys));
    }
    auto const channels = static_cast<double>(s.channels + s.channels_of_values());
    return 2 * static_cast<double>(s.query_heads) * channels * pairs * (options_.is_causal ? 0.5 : 1);
  }
  /// Bytes of quantization: inputs read once and codes written once.
  double quantized_bytes() const {
    tessera::attention_shape const& s = shape_;
    std::int64_t const keys = s.key_heads * s.keys;
    return 3 * static_cast<double>(s.batch) *
           static_cast<double>((s.query_heads * s.queries + keys) * s.channels + keys * s.channels_of_values());
  }

  /// The distance of the results at outputs() in some rows.
  template <class Bias = tessera::no_bias>
  attention_distance distance(Bias const& bias = {}) {
    constexpr std::int64_t rows = 256;
    tessera::attention_shape const& s = shape_;
    std::int64_t const all = s.batch * s.query_heads * s.queries;
    std::vector<std::int64_t> chosen;
    for (std::int64_t i = 0; i < rows; ++i) {
      auto const row = static_cast<std::int64_t>(tessera::testing::hash(77, static_cast<std::uint64_t>(i)) %
                                                 static_cast<std::uint64_t>(all));
      std::int64_t const token = row % s.queries;
      chosen.push_back(row - token + token % length_of(row / s.queries / s.query_heads, s.queries));
    }
    device_array<std::int64_t> const list(memory_, rows);
    device_array<double> const scores(memory_, static_cast<std::size_t>(rows * s.keys));
    device_array<double> const exact(memory_, static_cast<std::size_t>(rows * s.channels_of_values()));
    cudaStream_t const stream = memory_.stream();
    check(cudaMemcpyAsync(list.data(), chosen.data(), list.bytes(), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    auto const in = inputs();
    attend_exactly<<<rows, 128, 0, stream>>>(in.queries, in.keys, in.values, in.key_lengths, options_.is_causal, bias,
                                             list.data(), scores.data(), exact.data());
    check(cudaGetLastError(), "attend_exactly");
    std::vector<double> expected(exact.size());
    check(cudaMemcpyAsync(expected.data(), exact.data(), exact.bytes(), cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
    std::vector<tessera::bfloat16> found(exact.size());
    std::int64_t const of_values = s.channels_of_values();
    for (std::int64_t i = 0; i < rows; ++i) {
      check(cudaMemcpyAsync(
                found.data() + i * of_values, result_.data() + chosen[static_cast<std::size_t>(i)] * of_values,
                static_cast<std::size_t>(of_values) * sizeof(tessera::bfloat16), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    }
    memory_.wait();
    return compare(found, expected);
  }

 private:
  std::int64_t length_of(std::int64_t sequence, std::int64_t extent) const {
    return lengths_.empty() ? extent : lengths_[static_cast<std::size_t>(sequence)];
  }

  static attention_distance compare(std::vector<tessera::bfloat16> const& found, std::vector<double> const& expected) {
    double apart = 0;
    double size = 0;
    double product = 0;
    double of_found = 0;
    double of_expected = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      auto const value = static_cast<double>(tessera::load(found[i]));
      apart += std::fabs(value - expected[i]);
      size += std::fabs(expected[i]);
      product += value * expected[i];
      of_found += value * value;
      of_expected += expected[i] * expected[i];
    }
    return {apart / size, product / std::sqrt(of_found * of_expected)};
  }

  tessera::testing::offset_channels heads(std::int64_t channels, double fraction, double sigma) const {
    bool const has_offsets = data_ == attention_data::with_offsets;
    return {static_cast<std::uint64_t>(channels), has_offsets ? fraction : 0.0, sigma};
  }

  template <class Generator>
  void fill(device_array<tessera::bfloat16> const& to, std::int64_t heads, std::int64_t each,
            Generator const& generator, std::uint64_t seed) {
    for (std::int64_t head = 0; head < heads; ++head) {
      fill_head<<<2048, 256, 0, memory_.stream()>>>(generator, seed + 10 * static_cast<std::uint64_t>(head),
                                                    to.data() + head * each, each);
      check(cudaGetLastError(), "fill_head");
    }
  }
  std::size_t query_size() const {
    return static_cast<std::size_t>(shape_.batch * shape_.query_heads * shape_.queries * shape_.channels);
  }
  std::size_t key_size() const {
    return static_cast<std::size_t>(shape_.batch * shape_.key_heads * shape_.keys * shape_.channels);
  }
  std::size_t value_size() const {
    return static_cast<std::size_t>(shape_.batch * shape_.key_heads * shape_.keys * shape_.channels_of_values());
  }
  std::size_t result_size() const {
    return static_cast<std::size_t>(shape_.batch * shape_.query_heads * shape_.queries * shape_.channels_of_values());
  }

  tessera::attention_shape shape_;
  attention_data data_;
  std::vector<std::int32_t> lengths_;
  tessera::attention_options options_;
  device_memory memory_;
  tessera::cuda exec_{.stream = memory_.stream(), .memory = memory_};
  device_array<tessera::bfloat16> queries_{memory_, query_size()};
  device_array<tessera::bfloat16> keys_{memory_, key_size()};
  device_array<tessera::bfloat16> values_{memory_, value_size()};
  device_array<tessera::bfloat16> result_{memory_, result_size()};
  device_array<std::int32_t> device_lengths_{memory_, static_cast<std::size_t>(shape_.batch)};
};

}  // namespace bench
