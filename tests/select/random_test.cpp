// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/select/random.hpp>

#include "select/chunk_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a random choice keeps the laws of a ChunkSelector", "[host]") {
  CHECK(broken_chunk_laws(random_selector<8>{16, 9}).empty());
}

TEST_CASE("lots are different for heads, positions and chunks, and the same each time", "[host]") {
  random_selector<8> const selector{.seed = 5};
  auto const lot = [&](std::int64_t chunk, std::int64_t head, std::int64_t position) {
    return selector.score(testing::detail::float_rows{nullptr, 0}, nullptr, 0, {chunk, head, position});
  };
  CHECK(lot(1, 2, 3) == lot(1, 2, 3));
  CHECK(lot(1, 2, 3) != lot(2, 2, 3));
  CHECK(lot(1, 2, 3) != lot(1, 3, 3));
  CHECK(lot(1, 2, 3) != lot(1, 2, 4));
  double sum = 0;
  for (std::int64_t chunk = 0; chunk < 10000; ++chunk) {
    sum += double{lot(chunk, 0, 0)};
  }
  CHECK(sum / 10000 == Approx(0.5).margin(0.01));
}
