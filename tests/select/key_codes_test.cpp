// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>

#include <tessera/select/key_codes.hpp>
#include <tessera/select/landmark.hpp>

#include "select/chunk_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("key codes keep the laws of a ChunkSelector", "[host]") {
  CHECK(broken_chunk_laws<key_code_selector<8>>().empty());
}

TEST_CASE("two bits a channel keep the order of scores better than means do", "[host]") {
  // One key of eight agrees with the query; how far above the other chunks is its chunk?
  int found_by_codes = 0;
  int found_by_mean = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto const query = normal_rows(1, seed + 1000);
    auto with_needle = normal_rows(8, 2 * seed);
    auto const without = normal_rows(8, 2 * seed + 1);
    for (std::size_t i = 0; i < static_cast<std::size_t>(selector_channels); ++i) {
      with_needle[3 * static_cast<std::size_t>(selector_channels) + i] = query[i];
    }
    found_by_codes +=
        score_of(key_code_selector<8>{}, with_needle, query) > score_of(key_code_selector<8>{}, without, query) ? 1 : 0;
    found_by_mean +=
        score_of(landmark_selector<8>{}, with_needle, query) > score_of(landmark_selector<8>{}, without, query) ? 1 : 0;
  }
  CHECK(found_by_codes >= 48);
  CHECK(found_by_codes > found_by_mean);
}

TEST_CASE("key codes take 288 bytes for a chunk of 8 keys of 128 channels", "[host]") {
  CHECK(key_code_selector<8>{}.elements(128) == 288);
}
