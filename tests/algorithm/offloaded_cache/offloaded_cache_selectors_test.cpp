// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/reduce/mean.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/random.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"

using namespace tessera;
using tessera_test::embedding;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_heads;

namespace {

constexpr offload_heads heads{6, 2, 16};

/// A reader's own selector: means of channels count if they are above a threshold, and a share of the chunks is taken,
/// or six of them.
struct above_threshold {
  using landmark_type = float;
  using group_type = group_max;
  static constexpr int chunk = 8;

  float threshold = 0.0F;
  float share = 0.0F;

  [[nodiscard]] mean_reducer<float> summary() const { return {}; }
  [[nodiscard]] float landmark(counted_sum<float> const& summarised) const {
    float const mean = summary().value(summarised);
    return std::abs(mean) >= threshold ? mean : 0.0F;
  }
  [[nodiscard]] float score(float query, float landmark) const { return query * landmark; }
  [[nodiscard]] std::int64_t budget(std::int64_t candidates) const {
    return share > 0.0F ? static_cast<std::int64_t>(share * static_cast<float>(candidates))
                        : std::min(candidates, std::int64_t{6});
  }
};

}  // namespace

TEST_CASE("a reader's own selector is called with its state", "[host]") {
  auto const s = make_sequence<float>(heads, 470, 13, 0.8);
  auto const chosen = [&]<class S>(S const& selector) {
    using method = offloaded_cache<exact_keys, S, keep_outliers<0>>;
    host_cache<method, float> cache(heads, {500}, embedding(), {}, selector);
    cache.prefill(cpu{}, 0, s, 395);
    cache.decode(cpu{}, {&s}, {395});
    auto const step = cache.step(1);
    return std::vector<std::int32_t>(step.selected.data, step.selected.data + step.selected.size());
  };
  auto const plain = chosen(landmark_selector<8>{.chunks = 6});
  CHECK(chosen(above_threshold{.threshold = 0.0F}) == plain);  // all means count
  auto const some = chosen(above_threshold{.threshold = 0.5F});
  CHECK(some.size() == plain.size());
  CHECK(some != plain);
  // No mean counts: all chunks are alike, of which the earlier ones are taken.
  auto const none = chosen(above_threshold{.threshold = 1e30F});
  CHECK(none == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(chosen(above_threshold{.threshold = 0.0F, .share = 0.05F}).size() == 2 * 2);  // of at most 55 chunks
}

TEST_CASE("a selector's state is that of the plan", "[host]") {
  auto const s = make_sequence<float>(heads, 470, 11, 0.8);
  using method = offloaded_cache<exact_keys, random_selector<8>, keep_outliers<0>>;
  std::vector<std::vector<std::int32_t>> chosen;
  for (std::uint64_t const seed : {3U, 4U, 3U}) {
    random_selector<8> const selector{.chunks = 5, .seed = seed};
    host_cache<method, float> cache(heads, {500}, embedding(), {}, selector);
    cache.prefill(cpu{}, 0, s, 395);
    cache.decode(cpu{}, {&s}, {395});
    auto const step = cache.step(1);
    chosen.emplace_back(step.selected.data, step.selected.data + step.selected.size());
    std::vector<std::pair<float, std::int32_t>> lots;
    for (std::int32_t chunk = 0; chunk < 42; ++chunk) {
      auto const any = [](std::int64_t) { return 0.0F; };
      lots.emplace_back(-selector.score(any, nullptr, 16, {chunk, 1, 395}), chunk);
    }
    std::sort(lots.begin(), lots.end());
    std::vector<std::int32_t> expected;
    for (std::size_t i = 0; i < 5; ++i) {
      expected.push_back(lots[i].second);
    }
    std::sort(expected.begin(), expected.end());
    CHECK(std::vector<std::int32_t>(chosen.back().begin() + 5, chosen.back().end()) == expected);
  }
  CHECK(chosen[0] != chosen[1]);
  CHECK(chosen[0] == chosen[2]);
}
