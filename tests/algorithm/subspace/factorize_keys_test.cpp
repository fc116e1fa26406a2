// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/factorize_problem.hpp"
#include "support/message_of.hpp"
#include "support/real_tensor.hpp"

using namespace tessera;
using tessera_test::check_found;
using tessera_test::factorize;
using tessera_test::keys_with;
using tessera_test::worst_product;

TEST_CASE("directions leave at most a hundredth more than the best ones do", "[host][slow][threads]") {
  cpu const exec{.threads = 2};
  std::int64_t const heads = 3;
  std::int64_t const channels = 32;
  auto const flat = keys_with(heads, 400, channels, [](double i) { return 1.0 / std::sqrt(i + 1); });
  auto const power = keys_with(heads, 400, channels, [](double i) { return 1.0 / (i + 1); });
  auto const falling = keys_with(heads, 400, channels, [](double i) { return std::exp(-i / 8) + 1e-4; });
  for (std::int64_t const rank : {16, 40}) {
    CAPTURE(rank);
    check_found(factorize(exec, flat, heads, 400, channels, rank), flat, heads, 400, channels, rank, 1.01);
    check_found(factorize(exec, power, heads, 400, channels, rank), power, heads, 400, channels, rank, 1.01);
    check_found(factorize(exec, falling, heads, 400, channels, rank), falling, heads, 400, channels, rank, 1.001);
  }
}

TEST_CASE("keys of a real model lie in as few directions as the best choice has", "[host][long][threads]") {
  auto const keys = tessera_test::real_tensor<bfloat16>("smollm2_attention.safetensors", "layers.15.keys_pre_rope");
  cpu const exec{.threads = 2};
  for (std::int64_t const rank : {32, 96}) {
    CAPTURE(rank);
    check_found(factorize(exec, keys, 3, 512, 64, rank), keys, 3, 512, 64, rank, 1.005);
  }
}

TEST_CASE("fewer tokens than directions, keys of zeros and full rank have orthonormal directions", "[host]") {
  cpu const exec{.threads = 1};
  auto const power = keys_with(2, 7, 16, [](double i) { return 1.0 / (i + 1); });
  check_found(factorize(exec, power, 2, 7, 16, 16, {4, 8}), power, 2, 7, 16, 16, 1.0);
  check_found(factorize(exec, power, 2, 7, 16, 32), power, 2, 7, 16, 32, 1.0);
  check_found(factorize(exec, power, 2, 7, 16, 1), power, 2, 7, 16, 1, 1.01);
  std::vector<float> const zeros(2 * 7 * 16, 0.0F);
  auto const found = factorize(exec, zeros, 2, 7, 16, 5);
  CHECK(worst_product(found.directions, 32, 5) < 1e-4);
  CHECK(found.measures.held == 0);
}

TEST_CASE("pieces of 2048 tokens give the bits that all tokens at once give", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto const keys = keys_with(1, 4200, 16, [](double i) { return 1.0 / (i + 1); });
  auto const whole = factorize(exec, keys, 1, 4200, 16, 4);
  auto const pieces = factorize(exec, keys, 1, 4200, 16, 4, {}, 2048);
  CHECK(whole.gram == pieces.gram);
  CHECK(whole.directions == pieces.directions);
}

TEST_CASE("the search keeps the rules for programs", "[host]") {
  auto const keys = keys_with(1, 40, 16, [](double i) { return 1.0 / (i + 1); });
  auto const one = factorize(cpu{.threads = 1}, keys, 1, 40, 16, 4, {2, 3});
  auto const other = factorize(testing::adversary{.seed = 5}, keys, 1, 40, 16, 4, {2, 3});
  CHECK(one.directions == other.directions);
  CHECK(one.measures.held == other.measures.held);
}

TEST_CASE("a rank beyond the width is refused with both numbers", "[host]") {
  CHECK_THROWS_WITH(key_factorization(64, 65),
                    "key_factorization: the rank is 65 but keys of all heads have 64 channels");
  CHECK_THROWS_WITH(key_factorization(64, 6, {0, 2}), tessera_test::contains("there are 0 iterations"));
}

TEST_CASE("a workspace of plan_find() gives the bits of regions in another plan, and takes no other extents",
          "[host]") {
  cpu const exec{.threads = 1};
  std::int64_t const width = 32;
  auto const keys = keys_with(2, 40, 16, [](double i) { return 1.0 / (i + 1); });
  auto const expected = factorize(exec, keys, 2, 40, 16, 4);
  key_factorization const factorization(width, 4);
  workspace_plan const plan = factorization.plan_find(exec);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> directions(static_cast<std::size_t>(width * 4));
  std::vector<float> gram = expected.gram;
  matrix_view<float> const products(gram.data(), {width, width});
  matrix_view<float> const target(directions.data(), {width, 4});
  factorization.settle(exec, view<float const, 3>(keys.data(), {2, 40, 16}), products, space);
  factorization.find(exec, matrix_view<float const>(products), target, space);
  CHECK(directions == expected.directions);
  CHECK(factorization.measures(space)[0].held == expected.measures.held);

  using tessera_test::contains;
  CHECK_THROWS_WITH(factorization.find(exec, matrix_view<float const>(gram.data(), {width, width - 1}), target, space),
                    contains("key_factorization.find: products of channels are 32 x 31 but 32 x 32 were planned"));
  CHECK_THROWS_WITH(factorization.find(exec, matrix_view<float const>(products),
                                       matrix_view<float>(directions.data(), {width, 3}), space),
                    contains("key_factorization.find: directions are 32 x 3 but 32 x 4 were planned"));
  CHECK_THROWS_WITH(
      factorization.settle(exec, view<float const, 3>(keys.data(), {1, 40, 16}), products, space),
      contains("key_factorization.settle: keys have 1 heads of 16 channels but 32 channels in all were planned"));
  key_factorization const larger(2 * width, 4);
  std::vector<float> const more(static_cast<std::size_t>(4 * width * width));
  std::vector<float> longer(static_cast<std::size_t>(2 * width * 4));
  CHECK_THROWS_WITH(
      larger.find(exec, matrix_view<float const>(more.data(), {2 * width, 2 * width}),
                  matrix_view<float>(longer.data(), {2 * width, 4}), space),
      contains("key_factorization.find: the workspace is of a plan of " + std::to_string(plan.bytes()) +
               " bytes but 4 directions of 64 channels need " + std::to_string(larger.plan_find(exec).bytes())));
}

TEST_CASE("keys, products, directions and coefficients without memory are refused by their names", "[host]") {
  cpu const exec{.threads = 1};
  key_factorization const factorization(64, 4);
  workspace_plan const plan = factorization.plan_find(exec);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> values(64 * 64);
  view<float const, 3> const keys(values.data(), {1, 64, 64});
  view<float const, 3> const no_keys(nullptr, {1, 100, 64});
  matrix_view<float> const gram(values.data(), {64, 64});
  matrix_view<float> const no_gram(nullptr, {64, 64});
  auto const message = [](auto const& call) { return tessera_test::message_of(call); };
  CHECK(message([&] { factorization.accumulate(exec, no_keys, gram); }) ==
        "key_factorization.accumulate: the keys have no memory but 6400 elements");
  CHECK(message([&] { factorization.accumulate(exec, keys, no_gram); }) ==
        "key_factorization.accumulate: the products of channels have no memory but 4096 elements");
  CHECK(message([&] { factorization.accumulate(exec, keys, gram, array_view<float>(nullptr, 9)); }) ==
        "key_factorization.accumulate: the elements of the room have no memory but 9 elements");
  CHECK(message([&] { factorization.settle(exec, no_keys, gram, space); }) ==
        "key_factorization.settle: the keys have no memory but 6400 elements");
  CHECK(message([&] { factorization.settle(exec, keys, no_gram, space); }) ==
        "key_factorization.settle: the products of channels have no memory but 4096 elements");
  CHECK(message([&] { factorization.find(exec, matrix_view<float const>(no_gram), gram.slice(1, 0, 4), space); }) ==
        "key_factorization.find: the products of channels have no memory but 4096 elements");
  matrix_view<float> const no_directions(nullptr, {64, 4});
  CHECK(message([&] { factorization.find(exec, matrix_view<float const>(gram), no_directions, space); }) ==
        "key_factorization.find: the directions have no memory but 256 elements");
  matrix_view<float const> const directions(values.data(), {64, 4});
  matrix_view<float> const coefficients(values.data(), {64, 4});
  CHECK(message([&] {
          factorization.project(exec, view<float const, 3>(nullptr, {1, 64, 64}), directions, coefficients);
        }) == "key_factorization.project: the keys have no memory but 4096 elements");
  CHECK(message([&] {
          factorization.project(exec, keys, matrix_view<float const>(nullptr, {64, 4}), coefficients);
        }) == "key_factorization.project: the directions have no memory but 256 elements");
  CHECK(message([&] { factorization.project(exec, keys, directions, no_directions); }) ==
        "key_factorization.project: the coefficients have no memory but 256 elements");
  CHECK_THROWS_AS(factorization.accumulate(exec, no_keys, gram), value_error);
}

TEST_CASE("keys and products of other extents than the factorization's are refused with both", "[host]") {
  cpu const exec{.threads = 1};
  key_factorization const factorization(64, 4);
  std::vector<float> values(64 * 64);
  view<float const, 3> const keys(values.data(), {1, 64, 64});
  matrix_view<float> const gram(values.data(), {64, 64});
  CHECK_THROWS_WITH(
      factorization.accumulate(exec, keys.slice(2, 0, 63), gram),
      "key_factorization.accumulate: keys have 1 heads of 63 channels but 64 channels in all were planned");
  CHECK_THROWS_WITH(factorization.accumulate(exec, keys, gram.slice(0, 0, 63)),
                    "key_factorization.accumulate: products of channels are 63 x 64 but 64 x 64 were planned");
  matrix_view<float const> const directions(values.data(), {63, 4});
  matrix_view<float> const coefficients(values.data(), {64, 4});
  CHECK_THROWS_WITH(factorization.project(exec, keys, directions, coefficients),
                    "key_factorization.project: keys have 1 heads of 64 channels but directions have 63 channels");
  CHECK_THROWS_WITH(factorization.project(exec, keys, matrix_view<float const>(gram).slice(1, 0, 5), coefficients),
                    "key_factorization.project: coefficients are 64 x 4 but 64 tokens have 5 each");
}
