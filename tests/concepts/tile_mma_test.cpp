// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/concepts/tile_mma.hpp>
#include <tessera/testing/laws/tile_mma.hpp>

#include "concepts/serial_mma.hpp"
#include "support/catch.hpp"

using tessera::TileMma;
using tessera::testing::check_laws;
using tessera_test::one_lane;
using tessera_test::serial_mma;

namespace tile_mma_test {

using mma = serial_mma<4, 3, 5>;

struct forgetting : mma {
  static constexpr void multiply(one_lane group, a_tile const& a, b_tile const& b, sum_tile& sums) {
    clear(group, sums);
    mma::multiply(group, a, b, sums);
  }
};

struct ignoring_the_stride : mma {
  static constexpr void load_b(one_lane group, b_tile& b, float const* from, std::int64_t) {
    mma::load_b(group, b, from, columns);
  }
};

struct never_turning : mma {
  static constexpr void load_b_transposed(one_lane group, b_tile& b, float const* from, std::int64_t) {
    mma::load_b(group, b, from, columns);
  }
};

struct writing_beyond_the_row : mma {
  static constexpr void store(one_lane group, sum_tile const& sums, float* to, std::int64_t stride) {
    mma::store(group, sums, to, stride);
    to[columns] = 0.0F;
  }
};

struct never_clearing : mma {
  static constexpr void clear(one_lane, sum_tile& sums) { sums.values[1][1] = 1.0F; }
};

static_assert(TileMma<mma>);
static_assert(!TileMma<one_lane>);

}  // namespace tile_mma_test

using namespace tile_mma_test;

TEST_CASE("a serial tile product keeps the laws, whatever its shape", "[host]") {
  CHECK(check_laws<mma>().text().empty());
  CHECK(check_laws<serial_mma<1, 1, 1>>().text().empty());
  CHECK(check_laws<serial_mma<16, 8, 16>>().text().empty());
}

TEST_CASE("a tile product that forgets the sums is caught", "[host]") {
  CHECK(check_laws<forgetting>().mentions("multiply adds to the sums"));
}

TEST_CASE("a tile load that ignores the stride is caught", "[host]") {
  CHECK(check_laws<ignoring_the_stride>().mentions("multiply is the matrix product"));
}

TEST_CASE("a load of rows of the product's columns that loads rows of the depth is caught", "[host]") {
  CHECK(check_laws<never_turning>().mentions("load_b_transposed loads what load_b does"));
}

TEST_CASE("a tile store that writes beyond its row is caught", "[host]") {
  CHECK(check_laws<writing_beyond_the_row>().mentions("store touches nothing between the rows"));
}

TEST_CASE("a clear that leaves a sum behind is caught", "[host]") {
  CHECK(check_laws<never_clearing>().mentions("clear makes the sums zero"));
}
