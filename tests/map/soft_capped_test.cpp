// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/map/soft_capped.hpp>
#include <tessera/testing/laws/sum_map.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a soft cap is cap * tanh(sum / cap), within a few roundings", "[host]") {
  CHECK(testing::check_map_laws(soft_capped{3.0F}, some_sums(), 4).text() == "");
  for (float const cap : {3.0F, 30.0F, 0.01F}) {
    for (int i = -400; i <= 400; ++i) {
      float const sum = static_cast<float>(i) * 0.25F;
      double const exact = static_cast<double>(cap) * std::tanh(static_cast<double>(sum) / static_cast<double>(cap));
      float const found = soft_capped{cap}(sum, i, -i);
      CAPTURE(cap, sum);
      CHECK(std::fabs(static_cast<double>(found) - exact) <= 0x1p-21 * std::fabs(exact));
      CHECK(std::fabs(found) <= cap);
    }
  }
}

TEST_CASE("a soft cap keeps signs, ends at the cap, and leaves small sums and NaNs", "[host]") {
  soft_capped const map{30.0F};
  CHECK(map(std::numeric_limits<float>::infinity(), 0, 0) == 30.0F);
  CHECK(map(-std::numeric_limits<float>::infinity(), 0, 0) == -30.0F);
  CHECK(map(1e30F, 0, 0) == 30.0F);
  CHECK(std::signbit(map(-0.0F, 0, 0)));
  CHECK(map(0.0F, 0, 0) == 0.0F);
  CHECK(map(1e-6F, 0, 0) == Approx(1e-6F).epsilon(1e-6));
  CHECK(std::isnan(map(std::numeric_limits<float>::quiet_NaN(), 0, 0)));
  CHECK(map(std::int32_t{-1000000}, 0, 0) == -30.0F);
}
