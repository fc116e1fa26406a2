// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <vector>

#include <tessera/algorithm/paged_cache/cross_layer_cache_types.hpp>
#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/merge/no_merger.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/merge/slerp.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// The rule of a reader that says itself which angles stay apart.
struct above_one_radian : retain_most_different {
  constexpr above_one_radian() : retain_most_different(retain_most_different::angle(1.0F)) {}
};

using of_heads = cross_layer_cache_options<slerp_merger<float>, above_one_radian, direction_codec<3, 32, 8>>;
using of_tokens = cross_layer_cache_options<slerp_merger<float>, retain_most_different_tokens, direction_codec<4, 128>>;
using unpaired = cross_layer_cache_options<no_merger, retain_most_different, direction_codec<2, 64>>;

}  // namespace

TEST_CASE("half of the layers are merged, from the deepest on", "[host]") {
  struct expectation {
    int layers;
    std::size_t singles;
    std::size_t pairs;
  };
  for (auto const& of :
       std::vector<expectation>{{32, 16, 8}, {30, 16, 7}, {1, 1, 0}, {3, 3, 0}, {4, 2, 1}, {0, 0, 0}}) {
    CAPTURE(of.layers);
    auto const parts = of_heads::half_merged(of.layers);
    REQUIRE(parts.size() == of.singles + of.pairs);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      CHECK(parts[i].layers == (i < of.singles ? 1 : 2));
    }
  }
}

TEST_CASE("a pair is kept by the rule of its cache, and a single layer retains nothing", "[host]") {
  cache_layers const pair = of_heads::pair();
  CHECK(pair.layers == 2);
  CHECK(pair.retention.rule == retention_rule::angle);
  CHECK(pair.retention.amount == 1.0F);
  CHECK(pair.row_capacity == -1);
  CHECK_FALSE(pair.whole_tokens);
  CHECK(of_tokens::pair().whole_tokens);
  CHECK(of_tokens::pair().retention.rule == retention_rule::range);
  cache_layers const single = of_heads::single();
  CHECK(single.layers == 1);
  CHECK(single.retention.rule == retention_rule::none);
  CHECK(single.row_capacity == 0);
  CHECK(of_tokens::single().whole_tokens);
}

TEST_CASE("layers have the bits and groups of their cache's codec", "[host]") {
  for (cache_layers const& part : {of_heads::single(), of_heads::pair()}) {
    CHECK(part.key_bits == 3);
    CHECK(part.value_bits == 8);
    CHECK(part.value_group == 32);
  }
  CHECK(of_tokens::pair().value_group == 128);
  unpaired const options;
  REQUIRE(options.parts.size() == 1);  // one layer unless it is said how layers are kept
  CHECK(options.parts[0].layers == 1);
  CHECK(options.parts[0].key_bits == 2);
}
