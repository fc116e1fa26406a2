// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Caches with exact keys and with given chunks on a GPU, compared with the host and with attention in double.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/select/given_chunks.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/quest.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/given_problem.hpp"
#include "support/message_of.hpp"
#include "support/offload_on_device.cuh"
#include "support/offload_problem.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::dense_attention;
using tessera_test::given_lists;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::message_of;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::offloaded_on_device;
using tessera_test::relative_error;
using tessera_test::to_device;
using tessera_test::to_host;

namespace {

using T = bfloat16;
constexpr offload_heads heads{8, 2, 64};

rotary_tables const& tables() {
  static rotary_tables const made(rotary_frequencies(500000.0, 64), 4096);
  return made;
}

}  // namespace

TEMPLATE_TEST_CASE("exact keys on a device give exact attention over the chunks that a step selects", "[cuda]",
                   landmark_selector<8>, quest_selector<8>) {
  TESSERA_NEEDS_CUDA();
  using method = offloaded_cache<exact_keys, TestType, keep_outliers<4>>;
  auto const s = make_sequence<T>(heads, 480, 5, 0.8);
  for (auto const where : {value_store::host, value_store::device}) {
    offloaded_on_device<method, T> cache(cuda{}, heads, {500}, tables(), {.values = where}, {.chunks = 9});
    cache.prefill(0, s, 395, where == value_store::host ? 0 : 40);
    for (std::int64_t position = 395; position < 480; ++position) {
      std::int64_t const chunks = cache.sequence(0).chunks;
      auto const& n = cache.plan().extents;
      auto const exact = to_host(cuda{}, cache.memory().exact_ids.data, cache.memory().exact_ids.size());
      auto const found = cache.decode({&s}, {position});
      auto const selected = to_host(cuda{}, cache.step(1).selected.data, 2 * n.budget);
      auto const has = [](std::vector<std::int32_t> const& lists, std::int64_t head, std::int64_t size,
                          std::int64_t chunk) {
        auto const first = lists.begin() + static_cast<std::ptrdiff_t>(head * size);
        return std::find(first, first + static_cast<std::ptrdiff_t>(size), static_cast<std::int32_t>(chunk)) !=
               first + static_cast<std::ptrdiff_t>(size);
      };
      auto const attended = [&](std::int64_t head, std::int64_t token) {
        return token / 8 >= chunks || has(exact, head, n.exact(), token / 8) ||
               has(selected, head, n.budget, token / 8);
      };
      auto const rotary = tables().embedding(rotary_pairs::halves);
      auto const expected = dense_attention(heads, s, position, rotary, 0, nullptr, attended);
      REQUIRE(std::count(selected.begin(), selected.end(), -1) == 0);
      REQUIRE(relative_error(found, expected) < 0.004);
    }
    CHECK(cache.sequence(0).residual == 0.0F);
  }
}

TEST_CASE("a device gives the verdicts of the host on given chunks, and the same results", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using method = offloaded_cache<exact_keys, given_chunks<8>, keep_outliers<2>>;
  auto const first = make_sequence<T>(heads, 420, 3, 0.8);
  auto const second = make_sequence<T>(heads, 120, 4, 0.8);
  for (given_lists const& lists : tessera_test::lists_with_faults()) {
    host_cache<method, T> here(heads, {420, 120}, tables().embedding(rotary_pairs::halves), {}, {.chunks = 4});
    offloaded_on_device<method, T> there(cuda{}, heads, {420, 120}, tables(), {}, {.chunks = 4});
    here.prefill(cpu{}, 0, first, 383);
    here.prefill(cpu{}, 1, second, 87);
    there.prefill(0, first, 383);
    there.prefill(1, second, 87);
    auto const chunks = to_device(cuda{}, lists.chunks);
    auto const counts = to_device(cuda{}, lists.counts);
    cuda{}.wait();
    chunk_lists on_host{{lists.chunks.data(), {2, 2, 4}}};
    chunk_lists on_device{{chunks.data(), {2, 2, 4}}};
    if (!lists.counts.empty()) {
      on_host.counts = {lists.counts.data(), {2, 2}};
      on_device.counts = {counts.data(), {2, 2}};
    }
    cpu const exec;
    std::vector<float> expected;
    std::vector<float> found;
    std::string const said = message_of([&] {
      expected = here.decode(exec, {&first, &second}, {383, 87}, {}, nullptr, on_host);
      exec.wait();
    });
    CHECK(message_of([&] { found = there.decode({&first, &second}, {383, 87}, {}, on_device); }) == said);
    CHECK(said.empty() == lists.said.empty());
    for (std::int64_t i = 0; i < 2; ++i) {
      CHECK(there.sequence(i).tokens == here.memory().sequences[i].tokens);
    }
    if (said.empty()) {
      CHECK(relative_error(found, std::vector<double>(expected.begin(), expected.end())) < 0.004);
    }
  }
}
