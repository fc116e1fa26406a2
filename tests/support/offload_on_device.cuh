// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// An offloaded cache on the device, with the functions that host_cache (support/offload_problem.hpp) has on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/exec/side_queue.cuh>
#include <tessera/project/rotary_tables.hpp>

#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/offload_problem.hpp"
#include "support/offload_runs.cuh"

namespace tessera_test {

/// An offloaded cache on the device; its memory is full of garbage at first.
template <class Method, class T>
class offloaded_on_device {
 public:
  using cache_type = typename Method::template cache_type<T>;
  using heads_view = tessera::view<T const, 3>;

  offloaded_on_device(tessera::cuda const& exec, offload_heads const& heads, std::vector<std::int64_t> tokens,
                      tessera::rotary_tables const& tables, tessera::offload_options const& options = {},
                      typename Method::selector_type const& selector = {})
      : exec_(exec),
        side_(exec, Method::side_marks, true),
        heads_(heads),
        plan_(Method::template plan<T>(exec, {heads.query_heads, heads.key_heads, heads.channels, std::move(tokens)},
                                       options, selector)),
        within_(to_device(exec, tables.within())),
        blocks_(to_device(exec, tables.blocks())),
        device_(exec, plan_.device.bytes()),
        host_(plan_.host.bytes(), pinned_),
        prompt_(exec, Method::plan_prefill(exec, plan_).bytes()),
        step_(exec, Method::plan_decode(exec, plan_).bytes()),
        cache_(Method::open(exec, plan_, device_.view(), host_.view(),
                            tables.embedding(tessera::rotary_pairs::halves, within_.data(), blocks_.data()),
                            selector)) {
    for (auto* block : {&device_, &prompt_, &step_}) {
      cuda_ok(cudaMemsetAsync(block->data(), 0xfb, block->bytes(), exec.stream));
    }
    std::fill(host_.begin(), host_.end(), std::byte{0xfb});
    exec.wait();
  }

  /// Caches all of a prompt on the device, at once or in pieces of `piece` tokens.
  void prefill(std::int64_t sequence, heads_view keys, heads_view values, std::int64_t piece = 0) {
    tessera::workspace const space(plan_.prompt, prompt_.view());
    if (piece == 0) {
      Method::prefill(exec_, side_, cache_, sequence, keys, values, space);
    } else {
      auto prompt = Method::begin(exec_, cache_, sequence, space);
      for (std::int64_t first = 0; first < keys.extent(1); first += piece) {
        std::int64_t const taken = std::min(piece, keys.extent(1) - first);
        Method::take(exec_, side_, cache_, prompt, keys.slice(1, first, taken), values.slice(1, first, taken), space);
      }
      Method::finish(exec_, side_, cache_, prompt, keys, values, space);
    }
    exec_.wait();
  }
  /// Caches the first `count` tokens of a sequence.
  void prefill(std::int64_t sequence, offload_sequence<T> const& s, std::int64_t count, std::int64_t piece = 0) {
    auto const keys = to_device(exec_, s.keys);
    auto const values = to_device(exec_, s.values);
    heads_view const k(keys.data(), {heads_.key_heads, s.tokens, heads_.channels});
    heads_view const v(values.data(), {heads_.key_heads, s.tokens, heads_.channels});
    prefill(sequence, k.slice(1, 0, count), v.slice(1, 0, count), piece);
  }

  /// A step of the first sequences, or of the named ones, with lists of chunks on the device, if any; queries, keys and
  /// values of one step after the other.
  std::vector<float> decode(std::vector<T> const& queries, std::vector<T> const& keys, std::vector<T> const& values,
                            std::vector<std::int32_t> const& named = {}, tessera::chunk_lists const& given = {}) {
    std::int64_t const row = heads_.query_heads * heads_.channels;
    std::int64_t const steps = static_cast<std::int64_t>(queries.size()) / row;
    auto const q = to_device(exec_, queries);
    auto const k = to_device(exec_, keys);
    auto const v = to_device(exec_, values);
    tessera::buffer<float> result(exec_, steps * row);
    tessera::offload_tokens<T> in{{q.data(), {steps, heads_.query_heads, heads_.channels}},
                                  {k.data(), {steps, heads_.key_heads, heads_.channels}},
                                  {v.data(), {steps, heads_.key_heads, heads_.channels}}};
    in.given = given;
    auto const sequences = to_device(exec_, named);
    if (!named.empty()) {
      in.sequences = sequences.view();
    }
    tessera::offload_outputs<float> const out{{result.data(), {steps, heads_.query_heads, heads_.channels}}};
    Method::decode(exec_, side_, cache_, in, out, tessera::workspace(plan_.step, step_.view()));
    return to_host(exec_, result.data(), result.size());
  }
  /// A step with the token at `position` of each sequence.
  std::vector<float> decode(std::vector<offload_sequence<T> const*> const& all,
                            std::vector<std::int64_t> const& positions, std::vector<std::int32_t> const& named = {},
                            tessera::chunk_lists const& given = {}) {
    offload_rows<T> rows;
    for (std::size_t i = 0; i < all.size(); ++i) {
      rows.add(heads_, *all[i], positions[i]);
    }
    return decode(rows.queries, rows.keys, rows.values, named, given);
  }
  void refit(std::int64_t sequence) {
    Method::refit(exec_, cache_, sequence, tessera::workspace(plan_.prompt, prompt_.view()));
    exec_.wait();
  }

  [[nodiscard]] auto const& plan() const { return plan_; }
  [[nodiscard]] auto const& memory() const { return cache_.memory; }
  [[nodiscard]] tessera::cached_sequence sequence(std::int64_t which) const {
    return to_host(exec_, cache_.memory.sequences.data + which, 1)[0];
  }
  [[nodiscard]] tessera::offload_statistics statistics() const { return Method::wait_for_statistics(exec_, cache_); }
  /// The memory that the latest step left, on the device.
  [[nodiscard]] tessera::offload_step<T> step(std::int64_t steps) {
    return plan_.step_of(tessera::workspace(plan_.step, step_.view()), steps, {});
  }
  /// All bytes of the cache that are on the device.
  [[nodiscard]] std::vector<std::byte> bytes() const { return to_host(exec_, device_.data(), device_.size()); }
  /// All bytes of the cache in pinned memory; call it when no work is under way.
  [[nodiscard]] std::vector<std::byte> pinned_bytes() const { return {host_.begin(), host_.end()}; }

 private:
  tessera::cuda exec_;
  tessera::side_queue<tessera::cuda> side_;
  offload_heads heads_;
  typename Method::template plan_type<T> plan_;
  tessera::pinned_memory pinned_;
  tessera::buffer<tessera::rotation> within_;
  tessera::buffer<tessera::rotation> blocks_;
  tessera::buffer<std::byte> device_;
  tessera::buffer<std::byte> host_;
  tessera::buffer<std::byte> prompt_;
  tessera::buffer<std::byte> step_;
  cache_type cache_;
};

}  // namespace tessera_test
