// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/subspace/large_products.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr std::int64_t head_count = 3;
constexpr std::int64_t channels = 16;
constexpr std::int64_t width = head_count * channels;

struct settled {
  std::vector<float> gram;
  float scale;
};

/// Products of keys, heads x tokens x channels, and the result of settle() for them.
template <class T, class Executor>
settled settle(Executor const& exec, std::vector<T> const& keys) {
  std::int64_t const tokens = static_cast<std::int64_t>(keys.size()) / width;
  view<T const, 3> const rows(keys.data(), {head_count, tokens, channels});
  key_factorization const factorization(width, 8);
  workspace_plan const plan = factorization.plan_find(exec);
  buffer<std::byte> memory(plan.bytes());
  workspace const space(plan, memory.view());
  settled made{std::vector<float>(static_cast<std::size_t>(width * width)), 0.0F};
  matrix_view<float> const gram(made.gram.data(), {width, width});
  factorization.accumulate(cpu{}, rows, gram);
  factorization.settle(exec, rows, gram, space);
  made.scale = factorization.measures(space)[0].scale;
  return made;
}

template <class T>
std::vector<T> keys_times(float by, std::int64_t tokens) {
  std::vector<T> made;
  for (std::size_t i = 0; i < static_cast<std::size_t>(width * tokens); ++i) {
    made.push_back(store<T>(by * testing::gauss().value(5, i)));
  }
  return made;
}

}  // namespace

TEST_CASE("keys are multiplied by a power of two where sums of their squares are large, and by 1 where not", "[host]") {
  CHECK(key_scale(0.0) == 1.0F);
  CHECK(key_scale(1e30) == 1.0F);
  CHECK(key_scale(NAN) == 1.0F);
  for (double const squares : {1.1e30, 1e50, 1e76, 3e83}) {
    double const scale = double{key_scale(squares)};
    int exponent = 0;
    CHECK(std::frexp(scale, &exponent) == 0.5);
    CHECK(scale * scale * squares < 0x1p50);
    CHECK(scale * scale * squares >= 1.0);
  }
  CHECK(key_scale(INFINITY) == 0x1p-120F);
}

TEMPLATE_TEST_CASE("products of huge keys are those of keys times a power of two", "[host][threads]", float, bfloat16) {
  for (std::int64_t const tokens : {1, 31, 75}) {
    for (float const by : {0x1p83F, 1e37F}) {
      CAPTURE(tokens, by);
      auto const keys = keys_times<TestType>(by, tokens);
      auto const found = settle(cpu{.threads = 2}, keys);
      REQUIRE(found.scale < 1e-10F);
      double worst = 0;
      for (std::int64_t a = 0; a < width; ++a) {
        for (std::int64_t b = 0; b < width; ++b) {
          double expected = 0;
          double whole = 0;
          for (std::int64_t token = 0; token < tokens; ++token) {
            auto const at = [&](std::int64_t i) {
              auto const index = static_cast<std::size_t>((i / channels * tokens + token) * channels + i % channels);
              return static_cast<double>(load(keys[index])) * double{found.scale};
            };
            expected += at(a) * at(b);
            whole += std::abs(at(a) * at(b));
          }
          double const own = double{found.gram[static_cast<std::size_t>(a * width + b)]};
          worst = std::max(worst, std::abs(own - expected) / whole);
          REQUIRE(own == double{found.gram[static_cast<std::size_t>(b * width + a)]});
        }
      }
      CHECK(worst < 1e-7);
    }
  }
}

TEST_CASE("products of other keys stay as they are, and those of keys that are not numbers are none", "[host]") {
  auto const keys = keys_times<float>(1e13F, 40);
  auto const found = settle(cpu{}, keys);
  std::vector<float> expected(static_cast<std::size_t>(width * width));
  key_factorization(width, 8).accumulate(cpu{}, view<float const, 3>(keys.data(), {head_count, 40, channels}),
                                         matrix_view<float>(expected.data(), {width, width}));
  CHECK(found.gram == expected);
  CHECK(found.scale == 1.0F);
  for (float const odd : {NAN, INFINITY}) {
    auto broken = keys_times<float>(1.0F, 40);
    broken[5] = odd;
    CHECK(std::isnan(settle(cpu{}, broken).gram[5 * width + 4] - settle(cpu{}, broken).gram[5 * width + 4]));
  }
}

TEST_CASE("finding products of huge keys keeps the rules for programs", "[host]") {
  auto const keys = keys_times<float>(1e25F, 37);
  auto const expected = settle(cpu{.threads = 1}, keys);
  auto const found = settle(testing::adversary{.seed = 4}, keys);
  CHECK((found.gram == expected.gram));
  CHECK(found.scale == expected.scale);
}
