// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/select/top_k.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/reference.hpp>

#include "support/catch.hpp"

namespace {

std::vector<std::int64_t> best(std::vector<float> const& scores, std::size_t take) {
  std::vector<std::int64_t> taken(take, -1);
  tessera::top_k(scores.data(), static_cast<std::int64_t>(scores.size()), static_cast<std::int64_t>(take),
                 taken.data());
  return taken;
}

constexpr bool known_at_compile_time() {
  float const scores[] = {0.1F, 0.9F, 0.5F, 0.9F};
  std::int64_t taken[2] = {};
  tessera::top_k(scores, 4, 2, taken);
  return taken[0] == 1 && taken[1] == 3;
}
static_assert(known_at_compile_time());

}  // namespace

TEST_CASE("the best scores are taken, in the order of their indices", "[host]") {
  for (std::size_t count : {1U, 2U, 7U, 64U, 1000U}) {
    std::vector<float> scores;
    for (std::uint64_t i = 0; i < count; ++i) {
      scores.push_back(tessera::testing::gauss().value(count, i));
    }
    for (std::size_t take = 0; take <= count; take += 1 + take / 2) {
      CAPTURE(count, take);
      CHECK(best(scores, take) == tessera::testing::reference_top_k(scores, take));
    }
    CHECK(best(scores, count).back() == static_cast<std::int64_t>(count) - 1);
  }
}

TEST_CASE("of equal scores the earlier ones are taken", "[host]") {
  CHECK(best({1, 1, 1, 1, 1}, 3) == std::vector<std::int64_t>{0, 1, 2});
  std::vector<float> few_values;
  for (std::uint64_t i = 0; i < 500; ++i) {
    few_values.push_back(static_cast<float>(tessera::testing::hash(5, i) % 4));
  }
  for (std::size_t take : {1U, 100U, 130U, 250U, 499U}) {
    CHECK(best(few_values, take) == tessera::testing::reference_top_k(few_values, take));
  }
  CHECK(best({-0.0F, 0.0F, -0.0F}, 2) == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("NaN is taken last, below minus infinity", "[host]") {
  CHECK(best({NAN, 1.0F, -INFINITY, NAN, INFINITY}, 3) == std::vector<std::int64_t>{1, 2, 4});
  CHECK(best({NAN, 1.0F, NAN}, 2) == std::vector<std::int64_t>{0, 1});
}
