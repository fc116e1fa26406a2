// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/select/given_chunks.hpp>
#include <tessera/select/random.hpp>

#include "select/chunk_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("given chunks keep the laws of a ChunkSelector", "[host]") {
  CHECK(broken_chunk_laws(given_chunks<8>{16}).empty());
  CHECK(given_chunks<8>{16}.budget(12) == 12);
  CHECK(given_chunks<8>{16}.budget(30) == 16);
}

TEST_CASE("given_chunks takes chunks from the caller, and other selectors do not", "[host]") {
  STATIC_REQUIRE(takes_given_chunks<given_chunks<8>>);
  STATIC_REQUIRE(!takes_given_chunks<random_selector<8>>);
}
