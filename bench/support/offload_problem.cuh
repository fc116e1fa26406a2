// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The problem that an offloaded cache is measured on: a layer with the paper's parameters, 32 query heads, 8 key heads
/// of 128 channels. There is no prompt: all of its memory is normal numbers of bf16, and landmarks of such keys.
/// Queries stay the same, so that every step selects the same chunks. Before each step it is set how many of them lie
/// in slots.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/exec/side_queue.cuh>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/shadow_kv.hpp>
#include <tessera/testing/generators.hpp>

#include "device.cuh"
#include "timing.cuh"

namespace bench {

/// Takes the chunks from the first `evicted` slots of each head; `chunk_slots` says that these chunks are archived.
template <class T, class E>
__global__ void evict_slots(tessera::offload_extents extents, tessera::offloaded_memory<T, E> memory,
                            std::int64_t evicted) {
  std::int64_t const sequence = blockIdx.x / extents.key_heads;
  std::int64_t const head = blockIdx.x % extents.key_heads;
  for (std::int64_t slot = threadIdx.x; slot < evicted; slot += blockDim.x) {
    std::int32_t& id = memory.slot_ids(sequence, head, slot);
    if (id >= 0) {
      memory.chunk_slots(memory.sequences[sequence].first + id, head) =
          static_cast<std::int16_t>(tessera::chunk_slot::archived);
    }
    id = -1;
  }
}

/// An executor that runs the portable programs only.
struct portable_cuda : tessera::cuda {};

struct offload_setup {
  std::int64_t sequences = 16;
  std::int64_t tokens = 131072;
  tessera::value_store store = tessera::value_store::host;

  friend bool operator==(offload_setup const&, offload_setup const&) = default;
};

/// Method: an offloaded_cache.
template <class Method>
class offload_problem {
 public:
  using value_type = tessera::bfloat16;
  using selector = typename Method::selector_type;
  using element = typename tessera::chunk_landmarks<selector>::element_type;
  using codec = typename Method::codec_type;
  static constexpr std::int64_t query_heads = 32;
  static constexpr std::int64_t key_heads = 8;
  static constexpr std::int64_t channels = 128;

  explicit offload_problem(offload_setup const& setup) : setup_(setup) {
    fill(dense_keys_, tessera::testing::gauss{}, 1, memory_.stream());
    fill(dense_values_, tessera::testing::gauss{}, 2, memory_.stream());
    fill(queries_, tessera::testing::gauss{}, 3, memory_.stream());
    fill(new_keys_, tessera::testing::gauss{}, 4, memory_.stream());
    fill(new_values_, tessera::testing::gauss{}, 5, memory_.stream());
    exec_.copy(tables_.within(), within_);
    exec_.copy(tables_.blocks(), blocks_);
    fill_memory();
    open_sequences();
    memory_.wait();
  }

  offload_setup const& setup() const { return setup_; }
  tessera::cuda const& exec() const { return exec_; }
  cudaStream_t stream() const { return memory_.stream(); }
  typename Method::template plan_type<value_type> const& plan() const { return plan_; }

  /// Makes restore() from now on set up steps that find this part of their chunks in slots, and that fill the ring or
  /// do not.
  void set(double hit_rate, bool archives) {
    auto const& n = plan_.extents;
    set_tokens(false);
    step();  // afterwards all selected chunks lie in slots
    auto const evicted = static_cast<std::int64_t>(std::lround((1 - hit_rate) * static_cast<double>(n.slots)));
    auto const groups = static_cast<unsigned>(setup_.sequences * n.key_heads);
    evict_slots<<<groups, 256, 0, stream()>>>(n, cache_.memory, evicted);
    check(cudaGetLastError(), "evict_slots");
    set_tokens(archives);
    for (auto const& part : kept_) {
      copy(part.copy->data(), part.from, part.bytes);
    }
    memory_.wait();
  }
  void restore() {
    for (auto const& part : kept_) {
      copy(part.from, part.copy->data(), part.bytes);
    }
  }

  void step() { decode(exec_, side_, results_); }
  void step_portably() {
    portable_cuda const exec{exec_};
    tessera::side_queue<portable_cuda> const side(exec, 1);
    decode(exec, side, expected_);
  }
  void attend_dense() {
    tessera::attention_shape const s = dense_shape();
    auto const keys = heads(dense_keys_);
    auto const values = heads(dense_values_);
    tessera::workspace const space(dense_regions_.plan, dense_space_);
    tessera::run(exec_,
                 tessera::decode_attention_call<value_type, value_type>{
                     s,
                     {keys, values, {}, {}},
                     tessera::head_view<value_type const>(queries_.data(), {s.batch, s.query_heads, 1, s.channels}),
                     cache_.scale,
                     true,
                     {tessera::head_view<value_type>(dense_results_.data(), {s.batch, s.query_heads, 1, s.channels})},
                     dense_regions_.partials(space)});
  }

  // The programs of a step, each by itself; after a step their inputs are in memory.
  void score() {
    tessera::run(exec_, tessera::score_chunks<value_type, selector>{plan_.extents, cache_.memory, latest(),
                                                                    cache_.selector, cache_.scale});
  }
  void select() {
    tessera::run(exec_,
                 tessera::select_chunks<value_type, selector>{plan_.extents, cache_.memory, latest(), cache_.selector});
  }
  void assign() {
    tessera::run(exec_, tessera::assign_slots<value_type, element>{plan_.extents, cache_.memory, latest(), true});
  }
  void fetch() {
    bool const crosses_bus = setup_.store == tessera::value_store::host;
    tessera::run(
        exec_, tessera::fetch_values<value_type, element, codec>{plan_.extents, cache_.memory, latest(), crosses_bus});
  }
  void rebuild() {
    tessera::run(exec_,
                 tessera::rebuild_keys<value_type, element>{plan_.extents, cache_.memory, latest(), cache_.rotary});
  }
  void attend_selected() {
    auto const& n = plan_.extents;
    tessera::run(exec_, tessera::attend_chunks<value_type, element>{n, cache_.memory, latest(), cache_.scale,
                                                                    resident_splits(n), selected_splits(n)});
  }

  /// How many chunks the latest step missed, in all heads.
  double missed() {
    auto const counts = latest().missed_counts;
    std::vector<std::int32_t> found(static_cast<std::size_t>(counts.size()));
    exec_.copy(tessera::array_view<std::int32_t>(counts.data, counts.size()), found);
    exec_.wait();
    double sum = 0;
    for (std::int32_t const count : found) {
      sum += count;
    }
    return sum;
  }
  /// The distance of the results of step() and step_portably(): the mean difference over the mean magnitude.
  double distance() {
    std::vector<value_type> found(results_.size());
    std::vector<value_type> expected(results_.size());
    copy(found.data(), results_.data(), results_.bytes());
    copy(expected.data(), expected_.data(), expected_.bytes());
    memory_.wait();
    double apart = 0;
    double size = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      auto const value = static_cast<double>(tessera::load(expected[i]));
      apart += std::fabs(static_cast<double>(tessera::load(found[i])) - value);
      size += std::fabs(value);
    }
    return apart / size;
  }

  /// Bytes of scoring: landmarks and `chunk_slots` that are read, scores that are written.
  double score_bytes() const {
    std::int64_t const line = plan_.elements * static_cast<std::int64_t>(sizeof(element));
    return static_cast<double>(plan_.extents.rows * (key_heads * (line + 2) + query_heads * 4));
  }
  double selected_bytes() const {
    auto const& n = plan_.extents;
    return static_cast<double>(setup_.sequences * key_heads * n.budget * n.chunk * channels * 4);
  }
  double dense_bytes() const { return 2.0 * static_cast<double>(dense_keys_.bytes()); }
  /// The cache's bytes on the device, without a layer's part of the memory that all layers share.
  double cache_bytes() const { return static_cast<double>(plan_.device.bytes()); }
  double record_bytes() const { return static_cast<double>(plan_.record_bytes); }

 private:
  struct kept_part {
    void* from;
    std::size_t bytes;
    std::unique_ptr<device_array<std::byte>> copy;
  };

  template <class Executor, class Side>
  void decode(Executor const& exec, Side const& side, device_array<value_type> const& to) {
    std::int64_t const b = setup_.sequences;
    Method::decode(exec, side, cache_,
                   tessera::offload_tokens<value_type>{{queries_.data(), {b, query_heads, channels}},
                                                       {new_keys_.data(), {b, key_heads, channels}},
                                                       {new_values_.data(), {b, key_heads, channels}}},
                   tessera::offload_outputs<value_type>{{to.data(), {b, query_heads, channels}}},
                   tessera::workspace(plan_.step, step_.view()));
  }
  tessera::offload_step<value_type> latest() {
    return plan_.step_of(tessera::workspace(plan_.step, step_.view()), setup_.sequences, {});
  }
  void copy(void* to, void const* from, std::size_t bytes) const {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
  }

  template <class View>
  void fill_view(View const& view, double sigma, std::uint64_t seed) {
    fill(view.data, static_cast<std::size_t>(view.size()), tessera::testing::gauss{sigma}, seed, stream());
  }
  void fill_memory() {
    auto const& m = cache_.memory;
    check(cudaMemsetAsync(device_.data(), 0, static_cast<std::size_t>(device_.size()), stream()), "cudaMemsetAsync");
    fill_view(m.coefficients, 1.0, 12);
    fill_view(m.directions, 0.079, 13);
    fill_view(m.ring_keys, 1.0, 14);
    fill_view(m.ring_values, 1.0, 15);
    fill_view(m.ring_sources, 1.0, 16);
    fill_view(m.exact_keys, 1.0, 17);
    fill_view(m.exact_values, 1.0, 18);
    std::int64_t const chunks = plan_.capacity(0);
    std::int64_t const bytes = plan_.record_bytes;
    tessera::buffer<float> cosines(exec_, key_heads * chunks);
    // The records are made on the device: single bytes would take long over the bus.
    device_array<std::byte> const records(memory_, static_cast<std::size_t>(chunks * key_heads * bytes));
    for (std::int64_t i = 0; i < setup_.sequences; ++i) {
      tessera::view<value_type const, 3> const values(dense_values_.data() + i * key_heads * setup_.tokens * channels,
                                                      {key_heads, setup_.tokens, channels});
      tessera::view<value_type const, 3> const keys(dense_keys_.data() + i * key_heads * setup_.tokens * channels,
                                                    {key_heads, setup_.tokens, channels});
      std::int64_t const row = plan_.first_rows[static_cast<std::size_t>(i)];
      tessera::run(exec_, tessera::summarize_prompt<value_type, selector>{keys,
                                                                          cache_.rotary,
                                                                          cache_.selector,
                                                                          0,
                                                                          row,
                                                                          chunks,
                                                                          m.landmarks,
                                                                          {cosines.data(), {key_heads, chunks}}});
      tessera::run(exec_, tessera::put_values<value_type, codec>{
                              values, plan_.extents.chunk, 0, chunks, {records.data(), {chunks, key_heads, bytes}}});
      copy(&m.values(row, 0, 0), records.data(), records.bytes());
    }
  }
  /// Opens the sequences with archived chunks, as many as there is room for, or all but one; the outliers are spread
  /// over them.
  void open_sequences() {
    auto const& n = plan_.extents;
    auto const& m = cache_.memory;
    std::int64_t const chunks = plan_.capacity(0) - 1;
    for (std::int64_t i = 0; i < setup_.sequences; ++i) {
      auto const first = static_cast<std::int32_t>(plan_.first_rows[static_cast<std::size_t>(i)]);
      tessera::run(exec_, tessera::open_sequence<value_type, element>{n, m, i, first,
                                                                      static_cast<std::int32_t>(plan_.capacity(i))});
    }
    std::vector<std::int32_t> ids;
    std::vector<std::int16_t> chunk_slots(static_cast<std::size_t>(n.rows * n.key_heads), -1);
    for (std::int64_t list = 0; list < setup_.sequences * n.key_heads; ++list) {
      std::int64_t const first = plan_.first_rows[static_cast<std::size_t>(list / n.key_heads)];
      for (std::int64_t index = 0; index < n.exact(); ++index) {
        std::int64_t const chunk = (index * 331 + list) % chunks;
        ids.push_back(index < n.outliers ? static_cast<std::int32_t>(chunk) : -1);
        if (index < n.outliers) {
          chunk_slots[static_cast<std::size_t>((first + chunk) * n.key_heads + list % n.key_heads)] =
              static_cast<std::int16_t>(tessera::chunk_slot::exact);
        }
      }
    }
    exec_.copy(ids, tessera::array_view<std::int32_t>(m.exact_ids.data, m.exact_ids.size()));
    exec_.copy(chunk_slots, tessera::array_view<std::int16_t>(m.chunk_slots.data, m.chunk_slots.size()));
    memory_.wait();
    set_tokens(false);
    keep(m.chunk_slots);
    keep(m.slot_ids);
    keep(m.hands);
    keep(m.sequences);
    keep(m.exact_ids);
  }
  template <class View>
  void keep(View const& view) {
    auto const bytes = static_cast<std::size_t>(view.size()) * sizeof(*view.data);
    kept_.push_back({view.data, bytes, std::make_unique<device_array<std::byte>>(memory_, bytes)});
  }
  /// Sets whether a chunk leaves the ring with the next token, for which the ring has room, or has left it already.
  /// The position is the same either way, and so are the queries and the chunks that they select.
  void set_tokens(bool archives) {
    auto const& n = plan_.extents;
    std::vector<tessera::cached_sequence> all;
    for (std::int64_t i = 0; i < setup_.sequences; ++i) {
      auto const first = static_cast<std::int32_t>(plan_.first_rows[static_cast<std::size_t>(i)]);
      auto const capacity = static_cast<std::int32_t>(plan_.capacity(i));
      auto const chunks = archives ? capacity - 1 : capacity;
      auto const tokens = static_cast<std::int32_t>((capacity - 1) * n.chunk + n.ring - 1);
      all.push_back({first, capacity, tokens, chunks, 1.0F, 0.01F, 0, 0.0F, tokens});
    }
    exec_.copy(all, cache_.memory.sequences);
    memory_.wait();
  }

  tessera::attention_shape dense_shape() const {
    return {setup_.sequences, query_heads, key_heads, 1, setup_.tokens, channels};
  }
  tessera::head_view<value_type const> heads(device_array<value_type> const& from) const {
    return {from.data(), {setup_.sequences, key_heads, setup_.tokens, channels}};
  }
  static tessera::offload_options options(offload_setup const& setup) {
    tessera::offload_options made;
    made.values = setup.store;
    return made;
  }
  std::size_t count_of(std::int64_t each) const { return static_cast<std::size_t>(setup_.sequences * each); }

  offload_setup setup_;
  device_memory memory_;
  tessera::cuda exec_{.stream = memory_.stream(), .memory = memory_};
  tessera::side_queue<tessera::cuda> side_{exec_, Method::side_marks, true};
  tessera::pinned_memory pinned_;
  typename Method::template plan_type<value_type> plan_ = Method::template plan<value_type>(
      exec_,
      {query_heads, key_heads, channels,
       std::vector<std::int64_t>(static_cast<std::size_t>(setup_.sequences), setup_.tokens)},
      options(setup_));
  tessera::rotary_tables tables_{tessera::rotary_frequencies(500000.0, channels), setup_.tokens + 64};
  tessera::buffer<tessera::rotation> within_{exec_, static_cast<std::int64_t>(tables_.within().size())};
  tessera::buffer<tessera::rotation> blocks_{exec_, static_cast<std::int64_t>(tables_.blocks().size())};
  tessera::buffer<std::byte> device_{exec_, plan_.device.bytes()};
  tessera::buffer<std::byte> host_{plan_.host.bytes(), pinned_};
  tessera::buffer<std::byte> step_{exec_, plan_.step.bytes()};
  typename Method::template cache_type<value_type> cache_ =
      Method::open(exec_, plan_, device_.view(), host_.view(),
                   tables_.embedding(tessera::rotary_pairs::halves, within_.data(), blocks_.data()));
  device_array<value_type> dense_keys_{memory_, count_of(key_heads* setup_.tokens* channels)};
  device_array<value_type> dense_values_{memory_, count_of(key_heads* setup_.tokens* channels)};
  device_array<value_type> queries_{memory_, count_of(query_heads* channels)};
  device_array<value_type> new_keys_{memory_, count_of(key_heads* channels)};
  device_array<value_type> new_values_{memory_, count_of(key_heads* channels)};
  device_array<value_type> results_{memory_, count_of(query_heads* channels)};
  device_array<value_type> expected_{memory_, count_of(query_heads* channels)};
  device_array<value_type> dense_results_{memory_, count_of(query_heads* channels)};
  tessera::cached_attention_regions dense_regions_{"bench", dense_shape()};
  tessera::buffer<std::byte> dense_space_{exec_, dense_regions_.plan.bytes()};
  std::vector<kept_part> kept_;
};

/// Bytes a second of the runtime's copies from pinned host memory; measured once.
inline double bus_ceiling() {
  static double const measured = [] {
    constexpr std::size_t bytes = std::size_t{256} << 20;
    device_memory memory;
    device_array<unsigned char> const to(memory, bytes);
    tessera::pinned_memory pinned;
    tessera::buffer<std::byte> const from(static_cast<std::int64_t>(bytes), pinned);
    double const seconds = median_cold_seconds(memory.stream(), 5, [&](cudaStream_t stream) {
      check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    });
    return static_cast<double>(bytes) / seconds;
  }();
  return measured;
}

}  // namespace bench
