// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/attention/decode_splits.hpp>
#include <tessera/reduce/online_softmax.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using state = online_softmax<float>::state_type;
using partials = attention_partials<state>;

/// Memory for so many splits, from which nothing is read.
struct room {
  std::vector<float> totals;
  std::vector<attention_row<state>> rows;
  partials views;

  room(std::int64_t splits, attention_shape const& s)
      : totals(static_cast<std::size_t>(splits * s.batch * s.query_heads * s.queries * s.channels) + 1),
        rows(static_cast<std::size_t>(splits * s.batch * s.query_heads * s.queries) + 1),
        views{{totals.data(), {splits, s.batch, s.query_heads, s.queries, s.channels}},
              {rows.data(), {splits, s.batch, s.query_heads, s.queries}}} {}
};

std::int64_t splits_of(attention_shape const& s, std::int64_t most, std::int64_t tokens, std::int64_t blocks) {
  room const memory(most, s);
  partials const taken = decode_partials(s, memory.views, tokens, blocks);
  if (taken.rows.data != nullptr) {
    REQUIRE(taken.totals.data == memory.totals.data());
    REQUIRE(taken.rows.data == memory.rows.data());
    REQUIRE(taken.totals.extent(0) == taken.rows.extent(0));
    REQUIRE(taken.totals.extent(4) == s.channels);
  }
  return taken.splits();
}

attention_shape one_sequence(std::int64_t keys) {
  return {1, 8, 1, 1, keys, 4};
}

}  // namespace

TEST_CASE("keys are not shared without memory for it", "[host]") {
  partials const none = decode_partials(one_sequence(1 << 20), partials{}, 128, 132);
  CHECK(none.rows.data == nullptr);
  CHECK(none.totals.data == nullptr);
  CHECK(splits_of(one_sequence(1 << 20), 1, 128, 132) == 1);
}

TEST_CASE("keys of a few long sequences are shared among all blocks that run at a time", "[host]") {
  CHECK(splits_of({1, 8, 8, 1, 64 * 128, 4}, 64, 128, 64) == 8);   // 8 heads, 64 blocks
  CHECK(splits_of({2, 8, 8, 1, 64 * 128, 4}, 64, 128, 64) == 4);   // 16 heads
  CHECK(splits_of({1, 64, 8, 1, 64 * 128, 4}, 64, 128, 64) == 8);  // eight query heads are one work
  CHECK(splits_of({1, 72, 8, 1, 64 * 128, 4}, 64, 128, 64) == 4);  // nine are two
  CHECK(splits_of({1, 8, 1, 2, 1 << 20, 4}, 64, 128, 132) == 64);  // 66 would have been better
  CHECK(splits_of(one_sequence(1 << 20), 64, 128, 20) == 20);
  CHECK(splits_of(one_sequence(1 << 20), 13, 128, 20) == 13);
  CHECK(splits_of({2, 8, 1, 1, 1 << 20, 4}, 13, 128, 20) == 10);  // with more a block would have two of them
}

TEST_CASE("keys are not shared where that would not pay", "[host]") {
  CHECK(splits_of({64, 8, 8, 1, 4096, 4}, 8, 128, 128) == 1);  // there is enough to do
  CHECK(splits_of(one_sequence(128), 64, 128, 132) == 1);      // a single step
  CHECK(splits_of(one_sequence(256), 64, 128, 132) == 1);      // joining costs more than a step
  CHECK(splits_of(one_sequence(3 * 128), 64, 128, 132) == 3);
  CHECK(splits_of(one_sequence(0), 64, 128, 132) == 1);
  CHECK(splits_of({0, 8, 8, 1, 4096, 4}, 64, 128, 132) == 1);
  CHECK(splits_of({1, 8, 8, 0, 4096, 4}, 64, 128, 132) == 1);
}

TEST_CASE("more splits than can be joined are not taken, whatever the memory", "[host]") {
  attention_shape const s{1, 1, 1, 1, 1 << 24, 1};
  for (std::int64_t const most : {63, 64, 65, 200}) {
    CAPTURE(most);
    CHECK(splits_of(s, most, 64, 100000) == min(most, std::int64_t{most_attention_splits}));
  }
}

TEST_CASE("no number of splits costs less than what is chosen", "[host]") {
  constexpr decode_split_policy policy = decode_split_tuning{}(900);
  for (std::int64_t const heads : {1, 3, 8, 40, 132, 133}) {
    for (std::int64_t const keys : {1, 127, 128, 129, 1000, 5000, 70001}) {
      attention_shape const s{1, heads, heads, 1, keys, 1};
      auto const cost = [&](std::int64_t splits) {
        std::int64_t const turns = (heads * splits + 131) / 132;
        std::int64_t const steps = (keys + 128 * splits - 1) / (128 * splits);
        return turns * (policy.step * steps + policy.work) + (splits > 1 ? policy.merging : 0);
      };
      std::int64_t const chosen = splits_of(s, 64, 128, 132);
      for (std::int64_t splits = 1; splits <= 64; ++splits) {
        CAPTURE(heads, keys, splits, chosen);
        REQUIRE(cost(chosen) <= cost(splits));
        REQUIRE((splits >= chosen || cost(splits) > cost(chosen)));
      }
    }
  }
}
