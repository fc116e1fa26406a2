// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The problem that a compressed cache is measured on, made on the device: normal keys and values of bf16 of two
/// neighbouring layers. Their directions are 0.5 radians apart, 2.2 for one token in 50; every 31st channel has an
/// offset. Blocks of pages lie in random order.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/attention/decode_attention.cuh>
#include <tessera/algorithm/paged_cache/direction_codecs.hpp>
#include <tessera/algorithm/paged_cache/paged_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/program/paged_cache/cache_slots.hpp>
#include <tessera/testing/generators.hpp>

#include "device.cuh"

namespace bench {

template <class T>
__global__ void fill_pair(T* first, T* second, std::int64_t count, std::int64_t channels, std::uint64_t seed) {
  tessera::testing::gauss const normal{};
  std::int64_t const step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    auto const at = static_cast<std::uint64_t>(i);
    auto const token = static_cast<std::uint64_t>(i / channels);
    double const turn = tessera::testing::hash(seed + 3, token) % 50 == 0 ? 2.2 : 0.5;
    double const u = (i % channels % 31 == 7 ? 3.0 : 0.0) + static_cast<double>(normal.value(seed, at));
    double const v = static_cast<double>(normal.value(seed + 1, at));
    first[i] = tessera::store<T>(static_cast<float>(u));
    second[i] = tessera::store<T>(static_cast<float>(1.22 * (cos(turn) * u + sin(turn) * v)));
  }
}

/// Sums the magnitudes of differences, and those of the second list.
template <class T>
__global__ void compare_results(T const* found, T const* expected, std::int64_t count, double* sums) {
  std::int64_t const step = std::int64_t{gridDim.x} * blockDim.x;
  double apart = 0;
  double size = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    auto const value = static_cast<double>(tessera::load(expected[i]));
    apart += fabs(static_cast<double>(tessera::load(found[i])) - value);
    size += fabs(value);
  }
  atomicAdd(&sums[0], apart);
  atomicAdd(&sums[1], size);
}

struct cache_setup {
  tessera::attention_shape shape;
  double retained = 0;  ///< the part of the tokens that are retained; at most 1 in 50 is different enough
  std::int64_t window = 64;
  int value_groups = 2;
  int bits = 4;        ///< bits of a key's code
  int value_bits = 0;  ///< bits of a value's code; 0: as many as a key's

  friend bool operator==(cache_setup const&, cache_setup const&) = default;
};

class cache_problem {
 public:
  using value_type = tessera::bfloat16;
  /// The codec of all bits and groups that a setup may have.
  using codec_type = tessera::direction_codecs<tessera::direction_codec<4>, tessera::direction_codec<4, 128>,
                                               tessera::direction_codec<2>, tessera::direction_codec<3>,
                                               tessera::direction_codec<8>, tessera::direction_codec<4, 64, 2>>;

  explicit cache_problem(cache_setup const& setup) : setup_(setup) {
    tessera::attention_shape const& s = setup.shape;
    for (int part = 0; part < 2; ++part) {
      fill_pair<<<2048, 256, 0, memory_.stream()>>>(inputs_[0][part].data(), inputs_[1][part].data(),
                                                    static_cast<std::int64_t>(key_size()), s.channels,
                                                    static_cast<std::uint64_t>(10 + 20 * part));
      check(cudaGetLastError(), "fill_pair");
    }
    fill_pair<<<256, 256, 0, memory_.stream()>>>(queries_.data(), result_.data(),
                                                 static_cast<std::int64_t>(query_size()), s.channels, 77U);
    check(cudaGetLastError(), "fill_pair");
    std::vector<std::int32_t> list;
    std::int64_t const blocks = s.batch * pages_each();
    for (std::int64_t i = 0; i < blocks; ++i) {  // a step by a prime scatters them
      list.push_back(static_cast<std::int32_t>(i * 1000003 % blocks));
    }
    check(cudaMemcpyAsync(blocks_.data(), list.data(), blocks_.bytes(), cudaMemcpyHostToDevice, memory_.stream()),
          "cudaMemcpyAsync");
    std::vector<std::int32_t> const lengths(static_cast<std::size_t>(s.batch), static_cast<std::int32_t>(s.keys));
    check(cudaMemcpyAsync(lengths_.data(), lengths.data(), lengths_.bytes(), cudaMemcpyHostToDevice, memory_.stream()),
          "cudaMemcpyAsync");
    append();
    memory_.wait();
  }

  cache_setup const& setup() const { return setup_; }
  tessera::cuda const& exec() const { return exec_; }
  void wait() const { memory_.wait(); }

  /// Appends the inputs to the cache, which compresses them.
  void append() {
    tessera::attention_shape const& s = setup_.shape;
    auto const memory = cache();
    tessera::reset_slots<value_type> const reset{memory, {}, s.batch, exec_.status()};
    exec_.run(reset, reset.groups());
    tessera::workspace const space(append_regions_.plan, append_space_);
    auto const view = [&](int layer, int part) {
      return tessera::head_view<value_type const>(inputs_[layer][part].data(),
                                                  {s.batch, s.key_heads, s.keys, s.channels});
    };
    tessera::run(
        exec_,
        tessera::cache_append_call<tessera::slerp_merger<float>, value_type, codec_type>{
            {},
            rule(),
            false,
            {memory, {{view(0, 0), view(1, 0)}, {view(0, 1), view(1, 1)}}, sequences(), s.keys, append_regions_.pages},
            append_regions_.rows_in(space),
            append_regions_.marks_in(space)});
  }
  void attend(tessera::cuda const& exec, int layer = 1) {
    tessera::run(
        exec, tessera::cached_attention_call<value_type, value_type, codec_type>{
                  setup_.shape, cache(), sequences(), layer, queries(), scale(), true, {results(result_)}, partials()});
  }
  /// Attention over the keys and values that restore() has made from the cache.
  void attend_dense(tessera::cuda const& exec) {
    tessera::run(exec, tessera::decode_attention_call<value_type, value_type>{
                           setup_.shape,
                           {keys_as_restored(), values_as_restored(), {}, lengths()},
                           queries(),
                           scale(),
                           true,
                           {results(dense_result_)},
                           partials()});
  }
  void restore(int layer = 1) {
    tessera::attention_shape const& s = setup_.shape;
    tessera::head_view<value_type> const keys(restored_[0].data(), {s.batch, s.key_heads, s.keys, s.channels});
    tessera::head_view<value_type> const values(restored_[1].data(), {s.batch, s.key_heads, s.keys, s.channels});
    tessera::run(exec_, tessera::cache_restore_call<value_type, value_type>{cache(), sequences(), layer, keys, values});
  }

  /// The distance of attend() from attend_dense(), relative to the latter.
  double distance() {
    device_array<double> const sums(memory_, 2);
    check(cudaMemsetAsync(sums.data(), 0, sums.bytes(), memory_.stream()), "cudaMemsetAsync");
    compare_results<<<64, 256, 0, memory_.stream()>>>(result_.data(), dense_result_.data(),
                                                      static_cast<std::int64_t>(query_size()), sums.data());
    check(cudaGetLastError(), "compare_results");
    double found[2];
    check(cudaMemcpyAsync(found, sums.data(), sizeof found, cudaMemcpyDeviceToHost, memory_.stream()),
          "cudaMemcpyAsync");
    memory_.wait();
    return found[0] / found[1];
  }
  /// How many rows of all key heads are retained.
  double retained_rows() {
    std::vector<std::uint32_t> counts(counts_.size());
    check(cudaMemcpyAsync(counts.data(), counts_.data(), counts_.bytes(), cudaMemcpyDeviceToHost, memory_.stream()),
          "cudaMemcpyAsync");
    memory_.wait();
    double sum = 0;
    for (std::uint32_t const count : counts) {
      sum += count;
    }
    return sum;
  }

  double dense_bytes() const { return 4.0 * static_cast<double>(key_size()); }
  /// Bytes that a layer's attention reads: pages, retained tokens and the tail.
  double cached_bytes() {
    tessera::attention_shape const& s = setup_.shape;
    std::int64_t const sealed = tessera::sealed_pages(s.keys, setup_.window);
    auto const heads = static_cast<double>(s.batch * s.key_heads);
    auto const token = static_cast<double>(4 * s.channels);
    return heads * static_cast<double>(sealed * format().read_bytes()) + token * retained_rows() +
           heads * token * static_cast<double>(s.keys - sealed * 64);
  }
  /// Bytes of compressing: two layers read, one layer's pages and tails written.
  double compressed_traffic() {
    tessera::attention_shape const& s = setup_.shape;
    std::int64_t const sealed = tessera::sealed_pages(s.keys, setup_.window);
    auto const heads = static_cast<double>(s.batch * s.key_heads);
    auto const kept = retained_rows() + heads * static_cast<double>(s.keys - sealed * 64);
    return 2 * dense_bytes() + heads * static_cast<double>(sealed * format().bytes()) +
           kept * static_cast<double>(8 * s.channels);
  }

 private:
  tessera::cache_page_format format() const {
    return {static_cast<int>(setup_.shape.channels), setup_.bits,
            setup_.value_bits > 0 ? setup_.value_bits : setup_.bits, setup_.value_groups, 2};
  }
  tessera::retain_most_different rule() const {
    return setup_.retained > 0 ? tessera::retain_most_different::angle(1.5F) : tessera::retain_most_different::none();
  }
  std::int64_t capacity() const {
    return setup_.retained > 0 ? static_cast<std::int64_t>(2 * setup_.retained * static_cast<double>(setup_.shape.keys))
                               : 0;
  }
  std::int64_t pages_each() const { return setup_.shape.keys / 64 + 1; }
  tessera::cache_memory<value_type> cache() const {
    auto found = empty_cache();
    found.pages = pages_.data();
    found.tail = tail_.data();
    found.rows = rows_.data();
    found.row_counts = counts_.data();
    found.refused_rows = refused_.data();
    found.thresholds = thresholds_.data();
    return found;
  }
  tessera::cache_memory<value_type> empty_cache() const {
    tessera::attention_shape const& s = setup_.shape;
    return {format(), s.key_heads, setup_.window, capacity(), s.batch, s.keys, s.batch * pages_each(), {}, {}, {}, {},
            {},       {}};
  }
  tessera::sequence_lengths lengths() const { return {lengths_.data(), setup_.shape.batch}; }
  tessera::cache_sequences sequences() const {
    return {{blocks_.data(), {setup_.shape.batch, pages_each()}}, {}, lengths(), {}, setup_.shape.batch};
  }
  tessera::head_view<value_type const> queries() const {
    tessera::attention_shape const& s = setup_.shape;
    return {queries_.data(), {s.batch, s.query_heads, s.queries, s.channels}};
  }
  tessera::head_view<value_type> results(device_array<value_type> const& to) const {
    tessera::attention_shape const& s = setup_.shape;
    return {to.data(), {s.batch, s.query_heads, s.queries, s.channels}};
  }
  tessera::head_view<value_type const> keys_as_restored() const {
    tessera::attention_shape const& s = setup_.shape;
    return {restored_[0].data(), {s.batch, s.key_heads, s.keys, s.channels}};
  }
  tessera::head_view<value_type const> values_as_restored() const {
    tessera::attention_shape const& s = setup_.shape;
    return {restored_[1].data(), {s.batch, s.key_heads, s.keys, s.channels}};
  }
  tessera::attention_partials<tessera::online_softmax<float>::state_type> partials() {
    return attention_regions_.partials(tessera::workspace(attention_regions_.plan, attention_space_));
  }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(setup_.shape.channels)); }
  std::size_t query_size() const {
    tessera::attention_shape const& s = setup_.shape;
    return static_cast<std::size_t>(s.batch * s.query_heads * s.queries * s.channels);
  }
  std::size_t key_size() const {
    tessera::attention_shape const& s = setup_.shape;
    return static_cast<std::size_t>(s.batch * s.key_heads * s.keys * s.channels);
  }
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

  cache_setup setup_;
  device_memory memory_;
  tessera::cuda exec_{.stream = memory_.stream(), .memory = memory_};
  device_array<value_type> inputs_[2][2] = {{{memory_, key_size()}, {memory_, key_size()}},
                                            {{memory_, key_size()}, {memory_, key_size()}}};
  device_array<value_type> restored_[2] = {{memory_, key_size()}, {memory_, key_size()}};
  device_array<value_type> queries_{memory_, query_size()};
  device_array<value_type> result_{memory_, query_size()};
  device_array<value_type> dense_result_{memory_, query_size()};
  device_array<std::byte> pages_{memory_, size(empty_cache().page_bytes(setup_.shape.batch* pages_each()))};
  device_array<value_type> tail_{memory_, size(empty_cache().tail_values(setup_.shape.batch))};
  device_array<value_type> rows_{memory_, size(empty_cache().row_values(setup_.shape.batch)) + 8};
  device_array<std::uint32_t> counts_{memory_, size(setup_.shape.batch* setup_.shape.key_heads)};
  device_array<std::uint32_t> refused_{memory_, counts_.size()};
  device_array<float> thresholds_{memory_, 2 * counts_.size()};
  device_array<std::int32_t> blocks_{memory_, size(setup_.shape.batch* pages_each())};
  device_array<std::int32_t> lengths_{memory_, size(setup_.shape.batch)};
  tessera::cache_append_regions append_regions_{"bench", setup_.shape.batch, setup_.shape.keys, setup_.shape.key_heads};
  tessera::buffer<std::byte> append_space_{exec_, append_regions_.plan.bytes()};
  tessera::cached_attention_regions attention_regions_{"bench", setup_.shape};
  tessera::buffer<std::byte> attention_space_{exec_, attention_regions_.plan.bytes()};
};

}  // namespace bench
