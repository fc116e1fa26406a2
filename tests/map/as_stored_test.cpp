// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/map/as_stored.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Heads whose elements tell where they are.
struct numbered_heads {
  float operator()(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int64_t channel) const {
    return static_cast<float>(1000 * sequence + 100 * head + 10 * token + channel);
  }
};

/// Heads of one element.
struct constant_heads {
  float element;
  float operator()(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const { return element; }
};

}  // namespace

TEST_CASE("a head that is read as it is stored gives the element of each coordinate", "[host]") {
  STATIC_REQUIRE(std::is_trivially_copyable_v<as_stored>);
  STATIC_REQUIRE(std::is_empty_v<as_stored>);
  CHECK(as_stored{}(numbered_heads{}, 1, 2, 3, 4) == 1234.0F);
  CHECK(as_stored{}(numbered_heads{}, 4, 3, 2, 1) == 4321.0F);
  for (float const element : {-0.0F, 1e-40F, INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
    CHECK(bit_cast<std::uint32_t>(as_stored{}(constant_heads{element}, 0, 0, 0, 0)) ==
          bit_cast<std::uint32_t>(element));
  }
}
