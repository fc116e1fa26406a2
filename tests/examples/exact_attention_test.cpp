// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/support/exact_attention.hpp"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/testing/generators.hpp>

#include "support/attention_reference.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera_examples::attend_exactly;
using tessera_examples::exact_attention;
using tessera_test::as_doubles;

namespace {

exact_attention of_one_query(std::vector<bfloat16> const& query, std::vector<bfloat16> const& keys,
                             std::vector<bfloat16> const& values) {
  std::int64_t const channels = std::ssize(query);
  std::int64_t const tokens = std::ssize(keys) / channels;
  return attend_exactly<bfloat16>(query, {keys.data(), {tokens, channels}},
                                  {values.data(), {tokens, std::ssize(values) / tokens}});
}

}  // namespace

TEST_CASE("the report's exact attention is that of the tests", "[host]") {
  testing::gauss const normal;
  for (std::int64_t const tokens : {1, 2, 65}) {
    for (std::int64_t const channels : {1, 48, 64}) {
      auto const query = tessera_test::attention_samples<bfloat16>(normal, 1, 1, channels);
      auto const keys = tessera_test::attention_samples<bfloat16>(normal, 2, 1, tokens * channels);
      auto const values = tessera_test::attention_samples<bfloat16>(normal, 3, 1, tokens * channels);
      tessera_test::attention_problem<bfloat16> const p{{1, 1, 1, 1, tokens, channels}, query, keys, values};
      auto const expected =
          tessera_test::attention_by_formula(p, {p.shape, as_doubles(query), as_doubles(keys), as_doubles(values)});
      exact_attention const found = of_one_query(query, keys, values);
      CAPTURE(tokens, channels);
      CHECK(std::ssize(found.weights) == tokens);
      CHECK(std::accumulate(found.weights.begin(), found.weights.end(), 0.0) == Approx(1));
      REQUIRE(found.result.size() == expected.result.size());
      for (std::size_t i = 0; i < found.result.size(); ++i) {
        CHECK(found.result[i] == Approx(expected.result[i]).epsilon(1e-12).margin(1e-15));
      }
    }
  }
}

TEST_CASE("the report's exact attention weighs keys by the exponentials of their scores", "[host]") {
  auto const in_bf16 = [](std::vector<float> const& numbers) {
    std::vector<bfloat16> made;
    for (float number : numbers) {
      made.push_back(store<bfloat16>(number));
    }
    return made;
  };
  // Four channels: scores are halved.
  auto const query = in_bf16({2, 0, 0, 0});
  auto const keys = in_bf16({3, 9, 9, 9, 1, -9, 9, 0});
  auto const found = of_one_query(query, keys, in_bf16({1, 0, 0, 1}));
  double const part = 1 / (1 + std::exp(-2.0));
  CHECK(found.weights[0] == Approx(part));
  CHECK(found.weights[1] == Approx(1 - part));
  CHECK(found.result[0] == Approx(part));
  CHECK(found.result[1] == Approx(1 - part));
  // Scores whose exponentials are beyond double.
  auto const far = of_one_query(in_bf16({1000, 0, 0, 0}), keys, in_bf16({1, 0, 0, 1}));
  CHECK(far.weights[0] == 1);
  CHECK(far.result[1] == 0);
}
