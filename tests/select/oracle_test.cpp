// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/select/oracle.hpp>

#include "select/chunk_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("the oracle keeps the laws of a ChunkSelector", "[host]") {
  CHECK(broken_chunk_laws(oracle_selector<8>{-4}).empty());
}

TEST_CASE("the oracle scores a chunk as all its keys together", "[host]") {
  auto const keys = normal_rows(8, 1);
  auto const query = normal_rows(1, 2);
  double sum = 0;
  for (std::int64_t key = 0; key < 8; ++key) {
    sum += std::exp(product(keys.data() + key * selector_channels, query.data()));
  }
  CHECK(score_of(oracle_selector<8>{}, keys, query) == Approx(std::log(sum)).margin(0.05));
}
