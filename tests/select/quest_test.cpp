// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/testing/laws/selector.hpp>

#include "select/chunk_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("Quest keeps the laws of a ChunkSelector", "[host]") {
  CHECK(broken_chunk_laws<quest_selector<8>>().empty());
}

TEST_CASE("Quest keeps the laws of a Selector, and no key scores above its box", "[host]") {
  auto const same = [](interval<float> const& a, interval<float> const& b) { return a == b; };
  CHECK(testing::check_laws<quest_selector<8>>({0.3F, -1.7F, 2.2F, 0.0F}, {-2.0F, 0.0F, 0.5F}, 1e-6, same)
            .text()
            .empty());
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto keys = normal_rows(8, seed);
    for (float& key : keys) {
      key = load(store<bfloat16>(key));
    }
    auto const query = normal_rows(1, seed + 100);
    float const bound = score_of(quest_selector<8>{}, keys, query);
    for (std::int64_t key = 0; key < 8; ++key) {
      CHECK(product(keys.data() + key * selector_channels, query.data()) <= double{bound} + 1e-5);
    }
  }
}
