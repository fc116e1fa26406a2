// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <tessera/algorithm/subspace/subspace_search.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/factorize_problem.hpp"
#include "support/real_tensor.hpp"

using namespace tessera;
using tessera_test::check_found;
using tessera_test::factorize;
using tessera_test::keys_with;
using tessera_test::trace_of;
using tessera_test::worst_product;

using rounds = subspace_rounds;

TEST_CASE("directions found in rounds leave at most a hundredth more than the best ones do", "[host][long][threads]") {
  cpu const exec{.threads = 2};
  std::int64_t const heads = 3;
  std::int64_t const channels = 32;
  auto const flat = keys_with(heads, 400, channels, [](double i) { return 1.0 / std::sqrt(i + 1); });
  auto const power = keys_with(heads, 400, channels, [](double i) { return 1.0 / (i + 1); });
  auto const falling = keys_with(heads, 400, channels, [](double i) { return std::exp(-i / 8) + 1e-4; });
  auto const steps = keys_with(heads, 400, channels, [](double i) { return i < 16 ? 1.0 : i < 40 ? 0.5 : 0.2; });
  for (std::int64_t const rank : {16, 33, 40}) {
    CAPTURE(rank);
    check_found(factorize<rounds>(exec, flat, heads, 400, channels, rank), flat, heads, 400, channels, rank, 1.01);
    check_found(factorize<rounds>(exec, power, heads, 400, channels, rank), power, heads, 400, channels, rank, 1.01);
    check_found(factorize<rounds>(exec, steps, heads, 400, channels, rank), steps, heads, 400, channels, rank, 1.01);
    check_found(factorize<rounds>(exec, falling, heads, 400, channels, rank), falling, heads, 400, channels, rank,
                1.01);
  }
}

TEST_CASE("rounds find a common mean and what is beside it", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  auto keys = keys_with(2, 500, 64, [](double i) { return 1.0 / (i + 1); });
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] += 5.0F * std::sin(static_cast<float>(i % 64));
  }
  check_found(factorize<rounds>(exec, keys, 2, 500, 64, 24), keys, 2, 500, 64, 24, 1.01);
}

TEST_CASE("rounds find directions whose energies are far apart", "[host][slow][threads]") {
  cpu const exec{.threads = 2};
  auto const steep = keys_with(3, 400, 32, [](double i) { return std::pow(i + 1, -5.0); });
  auto const cliff = keys_with(3, 400, 32, [](double i) { return i < 4 ? 1e5 : std::pow(0.5, i); });
  for (std::int64_t const rank : {8, 40}) {
    CAPTURE(rank);
    check_found(factorize<rounds>(exec, steep, 3, 400, 32, rank), steep, 3, 400, 32, rank, 1.01);
    check_found(factorize<rounds>(exec, cliff, 3, 400, 32, rank), cliff, 3, 400, 32, rank, 1.01);
  }
}

TEST_CASE("rounds hold keys of a real model as well as the best choice, to a hundredth", "[host][long][threads]") {
  cpu const exec{.threads = 2};
  for (auto const& [layer, rank] :
       {std::pair{"14", 32}, std::pair{"14", 161}, std::pair{"15", 96}, std::pair{"16", 160}}) {
    auto const keys =
        tessera_test::real_tensor<bfloat16>("smollm2_attention.safetensors", join("layers.", layer, ".keys_pre_rope"));
    CAPTURE(layer, rank);
    check_found(factorize<rounds>(exec, keys, 3, 512, 64, rank), keys, 3, 512, 64, rank, 1.005);
  }
}

TEST_CASE("rounds on fewer tokens than directions, zeros and full rank give orthonormal directions", "[host]") {
  cpu const exec{.threads = 1};
  auto const power = keys_with(2, 7, 16, [](double i) { return 1.0 / (i + 1); });
  check_found(factorize<rounds>(exec, power, 2, 7, 16, 16), power, 2, 7, 16, 16, 1.0);
  check_found(factorize<rounds>(exec, power, 2, 7, 16, 32), power, 2, 7, 16, 32, 1.0);
  check_found(factorize<rounds>(exec, power, 2, 7, 16, 1), power, 2, 7, 16, 1, 1.01);
  std::vector<float> const zeros(2 * 7 * 16, 0.0F);
  auto const found = factorize<rounds>(exec, zeros, 2, 7, 16, 5);
  CHECK(worst_product(found.directions, 32, 5) < 1e-4);
  CHECK(found.measures.held == 0);
}

TEST_CASE("a channel that never changes is as good as any to rounds", "[host]") {
  cpu const exec{.threads = 1};
  auto keys = keys_with(2, 70, 16, [](double) { return 1e-3; });
  for (std::size_t i = 0; i < keys.size(); i += 16) {
    keys[i] = 3.0F;  // channel 0 of both heads
  }
  check_found(factorize<rounds>(exec, keys, 2, 70, 16, 4), keys, 2, 70, 16, 4, 1.01);
}

TEST_CASE("a value that is not a number is in all measures and directions of rounds", "[host]") {
  cpu const exec{.threads = 1};
  for (float const bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto keys = keys_with(1, 40, 16, [](double i) { return 1.0 / (i + 1); });
    keys[100] = bad;
    auto const found = factorize<rounds>(exec, keys, 1, 40, 16, 4);
    CHECK_FALSE(std::isfinite(found.measures.trace));
    CHECK(std::isnan(found.measures.held));
    for (float const value : found.directions) {
      CHECK(std::isnan(value));
    }
  }
}

TEST_CASE("rounds give the same bits whatever the threads", "[host][threads]") {
  auto const keys = keys_with(3, 40, 16, [](double i) { return 1.0 / (i + 1); });
  for (std::int64_t const rank : {4, 33}) {
    auto const one = factorize<rounds>(cpu{.threads = 1}, keys, 3, 40, 16, rank, {1, 3});
    auto const two = factorize<rounds>(cpu{.threads = 2}, keys, 3, 40, 16, rank, {1, 3});
    CHECK(one.directions == two.directions);
  }
}

TEST_CASE("rounds keep the rules for programs", "[host][slow]") {
  auto const keys = keys_with(3, 40, 16, [](double i) { return 1.0 / (i + 1); });
  for (std::int64_t const rank : {4, 33}) {
    auto const one = factorize<rounds>(cpu{.threads = 1}, keys, 3, 40, 16, rank, {1, 3});
    auto const other = factorize<rounds>(testing::adversary{.seed = 5}, keys, 3, 40, 16, rank, {1, 3});
    CHECK(one.directions == other.directions);
    CHECK(one.measures.held == other.measures.held);
  }
}
