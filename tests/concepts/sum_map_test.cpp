// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/map/chained.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/map/scaled_sum.hpp>
#include <tessera/map/soft_capped.hpp>
#include <tessera/testing/laws/sum_map.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::check_map_laws;

namespace {

/// A user's own maps: the second gives whole numbers.
struct rectified {
  float operator()(float sum, std::int64_t, std::int64_t) const { return sum > 0 ? sum : 0; }
};
struct is_positive {
  int operator()(float sum, std::int64_t, std::int64_t) const { return sum > 0 ? 1 : 0; }
};

/// Numbers its calls.
struct counting {
  mutable float calls = 0;
  float operator()(float sum, std::int64_t, std::int64_t) const { return sum + ++calls; }
};

/// Knows where it lies.
struct self_aware {
  self_aware const* self = this;
  float operator()(float sum, std::int64_t, std::int64_t) const { return self == this ? sum : -sum; }
};

/// Gives zeros from the first NaN on.
struct spoiled_by_nan {
  mutable bool has_seen = false;
  float operator()(float sum, std::int64_t, std::int64_t) const {
    has_seen = has_seen || std::isnan(sum);
    return has_seen ? 0.0F : sum;
  }
};

struct without_coordinate {
  float operator()(float sum) const { return sum; }
};
struct without_number {
  std::string operator()(float, std::int64_t, std::int64_t) const { return ""; }
};
struct with_values : rectified {
  std::vector<float> values;
};

static_assert(SumMap<plain_sum> && SumMap<soft_capped> && SumMap<chained<scaled_sum, rectified>>);
static_assert(SumMap<rectified> && SumMap<is_positive>);
static_assert(!SumMap<without_coordinate> && !SumMap<without_number> && !SumMap<with_values> && !SumMap<float>);

}  // namespace

TEST_CASE("maps of sums of the library and a user's own keep the laws", "[host]") {
  CHECK(check_map_laws(plain_sum{}, some_sums(), 4).text() == "");
  CHECK(check_map_laws(rectified{}, some_sums(), 4).text() == "");
  CHECK(check_map_laws(is_positive{}, some_sums(), 4).text() == "");
  CHECK(check_map_laws(chained<scaled_sum, rectified>{{0.5F}, {}}, some_sums(), 4).text() == "");
}

TEST_CASE("a map that depends on earlier calls, or on where it lies, is caught", "[host]") {
  CHECK(check_map_laws(counting{}, some_sums(), 4).mentions("the result depends on the sum and its coordinate alone"));
  CHECK(check_map_laws(spoiled_by_nan{}, some_sums(), 4)
            .mentions("the result depends on the sum and its coordinate alone"));
  auto const moved = check_map_laws(self_aware{}, some_sums(), 4);
  CHECK(moved.mentions("a copy of the bytes is the same map"));
  CHECK_FALSE(moved.mentions("the result depends on the sum and its coordinate alone"));
}
