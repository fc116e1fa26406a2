// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <limits>

#include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/merge/average.hpp>
#include <tessera/merge/no_merger.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a vector by itself has a direction and a length", "[host]") {
  no_merger const merger;
  CHECK(merger.mix({25.0, 0.0, 0.0}).first == 0.2F);
  CHECK(merger.mix({25.0, 49.0, 0.0}).second == 0.0F);
  CHECK(merger.keep({25.0, 49.0, 0.0}).first == 5.0F);
  CHECK(merger.keep({25.0, 49.0, 0.0}).second == 0.0F);
  CHECK(merger.mix({0.0, 0.0, 0.0}).first == 0.0F);  // zeros have no direction
  CHECK(merger.keep({0.0, 0.0, 0.0}).first == 0.0F);
  constexpr double largest = std::numeric_limits<double>::max();
  CHECK(merger.keep({largest, 0.0, 0.0}).first == std::numeric_limits<float>::max());
}

TEST_CASE("a cache of no merger refuses pairs in a list of the caller", "[host]") {
  using single_layers = cross_layer_cache<no_merger>;
  cpu const exec{.threads = 1};
  CHECK(
      single_layers(exec, {1, 64, 1, 1, 64}, {.parts = {single_layers::single(), single_layers::single()}}).layers() ==
      2);
  cache_layers two = single_layers::single();
  two.layers = 2;
  CHECK_THROWS_WITH(single_layers(exec, {1, 64, 1, 1, 64}, {.parts = {single_layers::single(), two}}),
                    "cross_layer_cache: part 1 has 2 layers but parts of this merger, which merges no pairs, must have "
                    "1");
}
