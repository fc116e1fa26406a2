// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/select/recent.hpp>

#include "select/chunk_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("the choice of recent chunks keeps the laws of a ChunkSelector", "[host]") {
  CHECK(broken_chunk_laws<recent_selector<8>>().empty());
}

TEST_CASE("of two chunks the later one scores higher, whatever their keys and the query's position", "[host]") {
  recent_selector<8> const selector;
  auto const score = [&](std::int64_t chunk, std::int64_t position) {
    return selector.score(testing::detail::float_rows{nullptr, 0}, nullptr, 0, {chunk, 0, position});
  };
  for (std::int64_t const position : {100, 8 * 5000}) {
    for (std::int64_t chunk = 0; chunk < 5000; ++chunk) {
      CHECK(score(chunk, position) < score(chunk + 1, position));
    }
  }
}
