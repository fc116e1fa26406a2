// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TESSERA_BROKEN_STREAMS sets how many streams are compared (else 100,000); TESSERA_SHOW_DIFFERENCES=1 prints each
// difference.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "support/catch.hpp"
#include "support/codecs.cuh"
#include "support/cuda.hpp"
#include "support/stream_differences.cuh"

TEST_CASE("of 100,000 broken streams the GPU makes what the CPU makes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  char const* const asked = std::getenv("TESSERA_BROKEN_STREAMS");
  std::int64_t const number = asked == nullptr ? 100'000 : std::atoll(asked);
  auto const begin = std::chrono::steady_clock::now();
  tessera_test::stream_tally const found = tessera_test::compare_broken_streams(tessera::cuda{}, number);
  std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%lld broken streams, %lld refused, %lld differences between GPU and CPU, %.1f s\n",
              static_cast<long long>(found.streams), static_cast<long long>(found.refused),
              static_cast<long long>(found.differences), seconds.count());
  CHECK(found.streams >= number);
  CHECK(found.refused > found.streams / 4);
  CHECK(found.refused < found.streams * 19 / 20);
  CHECK(found.differences == 0);
}
