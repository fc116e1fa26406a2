// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/quantize/token_sample.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr token_sample every_16{16};

}  // namespace

static_assert(every_16.step(0) == 1 && every_16.step(1023) == 1 && every_16.step(1024) == 2);
static_assert(every_16.step(2047) == 2 && every_16.step(4096) == 8 && every_16.step(8191) == 8);
static_assert(every_16.step(8192) == 16 && every_16.step(std::int64_t{1} << 40) == 16);
static_assert(token_sample{}.step(1 << 20) == 1 && token_sample{}.count(77) == 77 && token_sample{}.most(5000) == 5000);

TEST_CASE("a sample has one token of each step, of every remainder of a step as many", "[host]") {
  for (std::int64_t const length : {1, 1023, 1024, 1025, 2047, 2500, 4096, 8191, 8192, 10007}) {
    std::int64_t const step = every_16.step(length);
    std::int64_t const count = every_16.count(length);
    CAPTURE(length, step, count);
    CHECK(count >= (length < 1024 ? length : 512));
    std::vector<std::int64_t> counts(static_cast<std::size_t>(step));
    bool is_one_of_each = true;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t const token = token_sample::token(i, step);
      is_one_of_each = is_one_of_each && token / step == i && token < length;
      ++counts[static_cast<std::size_t>(token % step)];
    }
    CHECK(is_one_of_each);
    bool is_even = true;
    for (std::int64_t const met : counts) {
      is_even = is_even && (met == count / step || met == count / step + 1);
    }
    CHECK(is_even);
  }
}

TEST_CASE("no shorter sequence has a larger sample than most() says", "[host]") {
  std::int64_t largest = 0;
  bool is_bound = true;
  for (std::int64_t length = 0; length < 40000; ++length) {
    largest = largest < every_16.count(length) ? every_16.count(length) : largest;
    is_bound = is_bound && every_16.most(length) >= largest;
  }
  CHECK(is_bound);
  CHECK(every_16.most(40000) == 2500);
}
