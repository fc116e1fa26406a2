// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/paged_cache/saved_cache.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/page_runs.cuh"
#include "support/small_model.hpp"

using namespace tessera;
using namespace tessera_test;
using namespace tessera_test::small;

namespace {

template <class T>
buffer<T> on_device(cuda const& exec, std::vector<T> const& list) {
  buffer<T> copy(exec, static_cast<std::int64_t>(list.size()));
  exec.copy(array_view<T const>(list), copy.view());
  return copy;
}

}  // namespace

TEST_CASE("a cache that was saved on the host goes on on a device, and is the same when it is saved there", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const data = make_model(1, 400);
  small_model host(1);
  host.append(data, 0, 330);
  auto const saved = save_cache(host.exec, host.cache, host.sequences(), 0);

  cuda const exec;
  minicache const cache(exec, host.extents, {.parts = host.parts});
  load_cache(exec, cache, saved.data(), static_cast<std::int64_t>(saved.size()), 1, {7, 3, 5, 11});
  std::vector<std::int32_t> const table{7, 3, 5, 11, 0, 0, 0, 0};
  auto const blocks = on_device(exec, table);
  auto const slots = on_device(exec, std::vector<std::int32_t>{1});
  auto const lengths = on_device(exec, std::vector<std::int32_t>{330});
  auto pages = on_device(exec, std::vector<std::int32_t>{4});
  cache_sequences sequences{{blocks.data(), {1, 8}}, slots.view(), lengths.view(), pages.view(), 1};
  CHECK(save_cache(exec, cache, sequences, 0) == saved);
  auto const used = cache.wait_for_statistics(exec, sequences);
  CHECK(used.used() == host.cache.wait_for_statistics(host.exec, host.sequences()).used());

  // Appends 70 more tokens on both sides.
  host.append(data, 330, 70);
  auto const longer = on_device(exec, std::vector<std::int32_t>{400});
  sequences.lengths = longer.view();
  auto const plan = cache.plan_append(exec, {1, 70});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  buffer<bfloat16> lists[3][2][2];
  for (int part = 0; part < 3; ++part) {
    cache_inputs<bfloat16> inputs;
    for (int layer = 0; layer < 2; ++layer) {
      for (int which = 0; which < 2; ++which) {
        lists[part][layer][which] = on_device(exec, data[as_size(part)].part[layer][which]);
        head_view<bfloat16 const> const all(lists[part][layer][which].data(), {1, heads, 400, channels});
        (which == 0 ? inputs.keys : inputs.values)[layer] = all.slice(2, 330, 70);
      }
    }
    cache.append(exec, part, inputs, sequences, {70, {}}, space);
  }
  cache.advance(exec, sequences, pages.view(), 70);
  exec.wait();
  CHECK(save_cache(exec, cache, sequences, 0) == save_cache(host.exec, host.cache, host.sequences(), 0));
}
