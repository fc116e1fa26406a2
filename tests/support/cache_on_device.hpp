// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The memory of a cache_problem, and its lists, on a device.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/cache_problem.hpp"

namespace tessera_test {

template <class T>
buffer<T> on_device(cuda const& exec, T const* data, std::size_t count) {
  buffer<T> copy(exec, static_cast<std::int64_t>(count));
  exec.copy(array_view<T const>(data, static_cast<std::int64_t>(count)), copy.view());
  return copy;
}
template <class T>
buffer<T> on_device(cuda const& exec, std::vector<T> const& list) {
  return on_device(exec, list.data(), list.size());
}
template <class T>
std::vector<T> on_host(cuda const& exec, buffer<T> const& list) {
  std::vector<T> copy(as_size(list.size()));
  exec.copy(list.view(), array_view<T>(copy.data(), list.size()));
  exec.wait();
  return copy;
}

/// The same members as a host's cache_problem.
template <class T>
struct cache_on_device {
  cuda exec;
  buffer<std::byte> pages;
  buffer<T> tail;
  buffer<T> rows;
  buffer<std::uint32_t> counts;
  buffer<std::uint32_t> refused;
  buffer<float> thresholds;
  buffer<std::int32_t> blocks;
  buffer<std::int32_t> lengths;
  std::int64_t slots;
  std::int64_t most_pages;
  cache_memory<T> memory;

  explicit cache_on_device(cuda const& on, cache_problem<T> const& host)
      : exec(on),
        pages(on_device(on, host.memory.pages, as_size(host.memory.page_bytes(host.slots * host.most_pages)))),
        tail(on_device(on, host.tail)),
        rows(on_device(on, host.rows)),
        counts(on_device(on, host.row_counts)),
        refused(on_device(on, host.refused)),
        thresholds(on_device(on, host.thresholds)),
        blocks(on_device(on, host.blocks)),
        lengths(on_device(on, host.lengths)),
        slots(host.slots),
        most_pages(host.most_pages),
        memory(host.memory) {
    memory.pages = pages.data();
    memory.tail = tail.data();
    memory.rows = rows.data();
    memory.row_counts = counts.data();
    memory.refused_rows = refused.data();
    memory.thresholds = thresholds.data();
  }
  cache_sequences sequences() const {
    return {{blocks.data(), {slots, most_pages}}, {}, {lengths.data(), lengths.size()}, {}, slots};
  }
};

}  // namespace tessera_test
