// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/view/chunk_lists.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::vector<std::int32_t> numbers(std::int32_t count) {
  std::vector<std::int32_t> all;
  for (std::int32_t i = 0; i < count; ++i) {
    all.push_back(i);
  }
  return all;
}

}  // namespace

TEST_CASE("all entries of a list of chunks count unless their number is given", "[host]") {
  auto const chunks = numbers(4 * 2 * 3);
  std::vector<std::int32_t> const counts{0, 1, 2, 3, -1, 4, 2, 0};
  chunk_lists const whole{{chunks.data(), {4, 2, 3}}};
  chunk_lists const counted{{chunks.data(), {4, 2, 3}}, {counts.data(), {4, 2}}};
  for (std::int64_t step = 0; step < 4; ++step) {
    for (std::int64_t head = 0; head < 2; ++head) {
      CAPTURE(step, head);
      CHECK(whole.count(step, head) == 3);
      // As it is given, even where a program reports it.
      CHECK(counted.count(step, head) == counts[static_cast<std::size_t>(2 * step + head)]);
    }
  }
}

TEST_CASE("the lists of some of the steps are those of these steps", "[host]") {
  auto const chunks = numbers(4 * 2 * 3);
  auto const counts = numbers(4 * 2);
  chunk_lists const part = chunk_lists{{chunks.data(), {4, 2, 3}}, {counts.data(), {4, 2}}}.part(1, 2);
  CHECK(part.chunks.extent(0) == 2);
  CHECK(part.chunks(0, 0, 0) == 6);
  CHECK(part.chunks(1, 1, 2) == 17);
  CHECK(part.counts.extent(0) == 2);
  CHECK(part.count(0, 1) == 3);
  CHECK(part.count(1, 0) == 4);
  chunk_lists const uncounted = chunk_lists{{chunks.data(), {4, 2, 3}}}.part(2, 1);
  CHECK(uncounted.counts.data == nullptr);
  CHECK(uncounted.chunks(0, 0, 1) == 13);
  CHECK(uncounted.count(0, 0) == 3);
  CHECK(chunk_lists{}.part(0, 0).chunks.extent(0) == 0);
}
