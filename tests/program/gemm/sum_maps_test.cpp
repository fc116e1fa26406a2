// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/program/gemm/sum_maps.hpp>
#include <tessera/testing/laws/sum_map.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_map_laws;

namespace {

/// A user's own map.
struct rectified {
  float operator()(float sum, std::int64_t, std::int64_t) const { return sum > 0 ? sum : 0; }
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

struct without_coordinate {
  float operator()(float sum) const { return sum; }
};

static_assert(SumMap<plain_sum> && SumMap<soft_capped> && SumMap<chained<scaled_sum, rectified>>);
static_assert(!SumMap<without_coordinate>);

std::vector<float> some_sums() {
  std::vector<float> sums;
  for (int i = 0; i < 24; ++i) {
    sums.push_back(static_cast<float>(i) * 0.7F - 8.0F);
  }
  sums.push_back(-INFINITY);
  sums.push_back(NAN);
  sums.push_back(-0.0F);
  sums.push_back(1e30F);
  return sums;
}

}  // namespace

TEST_CASE("maps of sums of the library and a user's own keep the laws", "[host]") {
  std::vector<float> const bias{1.0F, -2.0F, 0.5F, 100.0F};
  std::vector<float> const matrix(28, 0.25F);
  CHECK(check_map_laws(plain_sum{}, some_sums(), 4).text() == "");
  CHECK(check_map_laws(scaled_sum{0.1F}, some_sums(), 4).text() == "");
  CHECK(check_map_laws(soft_capped{3.0F}, some_sums(), 4).text() == "");
  CHECK(check_map_laws(add_bias<float>{{bias.data(), 4}}, some_sums(), 4).text() == "");
  CHECK(check_map_laws(add_matrix<float>{{matrix.data(), {7, 4}}}, some_sums(), 4).text() == "");
  CHECK(check_map_laws(chained<scaled_sum, rectified>{{0.5F}, {}}, some_sums(), 4).text() == "");
}

TEST_CASE("a map that depends on earlier calls, or on where it lies, is caught", "[host]") {
  CHECK(check_map_laws(counting{}, some_sums(), 4).mentions("the result depends on the sum and its coordinate alone"));
  CHECK(check_map_laws(self_aware{}, some_sums(), 4).mentions("a copy of the bytes is the same map"));
}
