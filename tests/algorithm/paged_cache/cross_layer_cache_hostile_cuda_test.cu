// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/algorithm/paged_cache/direction_codecs.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/minicache.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/hostile_sequences.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// A cache with programs of a GPU for parts of several bits.
using cache_of_several =
    cross_layer_cache<slerp_merger<float>, retain_most_different,
                      direction_codecs<direction_codec<4>, direction_codec<3>, direction_codec<4, 64, 2>>>;

}  // namespace

TEST_CASE("lists that cannot be are reported by a GPU as by the host, and nothing else happens", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 96, 128}) {
    check_hostile_lists<cache_of_several>(cuda{}, channels);
  }
  check_hostile_lists<cache_of_several>(cuda{}, 128, {3, 3});
  check_hostile_lists<cache_of_several>(cuda{}, 128, {4, 2});
}
