// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <tessera/merge/average.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/merger.hpp>
#include <tessera/testing/reference.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::merge_and_restore;
using tessera::testing::vector_pair;

namespace {

bool nearly_same(pair_products const& a, pair_products const& b) {
  using tessera::testing::is_close;
  return is_close(a.first, b.first, 1e-12) && is_close(a.second, b.second, 1e-12) && is_close(a.cross, b.cross, 1e-12);
}

vector_pair random_pair(std::uint64_t seed, double second_length) {
  vector_pair pair;
  for (std::uint64_t i = 0; i < 96; ++i) {
    pair.first.push_back(testing::gauss{}.value(seed, i));
    pair.second.push_back(
        static_cast<float>(second_length * (0.8 * double{pair.first.back()} +
                                            0.6 * static_cast<double>(testing::gauss{}.value(seed + 1, i)))));
  }
  return pair;
}

double error_of(std::vector<float> const& found, std::vector<float> const& expected) {
  double square = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    double const apart = double{found[i]} - double{expected[i]};
    square += apart * apart;
  }
  return std::sqrt(square) / testing::detail::norm(expected);
}

}  // namespace

TEMPLATE_TEST_CASE("the mergers to compare with keep the laws", "[host]", average_merger<float>,
                   longer_vector_merger<float>, average_direction_merger<float>, average_direction_merger<bfloat16>,
                   (average_direction_merger<float, least_squares>), (slerp_merger<float, least_squares>)) {
  auto const report = testing::check_laws<TestType>({random_pair(1, 1.0), random_pair(5, 40.0), random_pair(9, 1e-12)},
                                                    4e-3, nearly_same);
  INFO(report.text());
  CHECK(report.is_empty());
}

TEST_CASE("the average is half of the sum, and the longer vector is itself", "[host]") {
  auto const pair = random_pair(3, 2.0);
  auto const average = merge_and_restore(average_merger<float>{}, pair);
  auto const longer = merge_and_restore(longer_vector_merger<float>{}, pair);
  for (std::size_t i = 0; i < pair.first.size(); ++i) {
    CHECK(average.first[i] == Approx(0.5 * (pair.first[i] + pair.second[i])).margin(1e-6));
    CHECK(average.first[i] == average.second[i]);
  }
  CHECK(longer.first == pair.second);
  CHECK(longer.second == pair.second);
}

TEST_CASE("the average of directions is slerp with a share of a half", "[host]") {
  auto const pair = random_pair(7, 3.0);
  auto const found = merge_and_restore(average_direction_merger<float>{}, pair);
  auto const expected = merge_and_restore(slerp_merger<float>{0.5F}, pair);
  CHECK(error_of(found.first, expected.first) < 1e-6);
  CHECK(error_of(found.second, expected.second) < 1e-6);
}

TEST_CASE("factors by least squares leave the least error, and lengths the length", "[host]") {
  auto const pair = random_pair(11, 1.7);
  auto const least = merge_and_restore(slerp_merger<float, least_squares>{}, pair);
  auto const preserved = merge_and_restore(slerp_merger<float>{}, pair);
  CHECK(error_of(least.first, pair.first) < error_of(preserved.first, pair.first));
  CHECK(error_of(least.second, pair.second) < error_of(preserved.second, pair.second));
  CHECK(testing::detail::norm(preserved.first) == Approx(testing::detail::norm(pair.first)).epsilon(1e-6));
  // Any other multiple is farther away.
  for (float factor : {0.98F, 1.02F}) {
    std::vector<float> other = least.first;
    for (float& value : other) {
      value *= factor;
    }
    CHECK(error_of(other, pair.first) > error_of(least.first, pair.first));
  }
}

TEST_CASE("mergers have a share where their rule has one", "[host]") {
  static_assert(std::is_same_v<average_direction_merger<float>::share_type, tessera::no_share>);
  static_assert(std::is_same_v<tessera::norm_weighted_slerp_merger<float>::share_type, tessera::no_share>);
  static_assert(std::is_same_v<slerp_merger<float>::share_type, float>);
  CHECK(slerp_merger<float>{}.share == 0.6F);
  CHECK(slerp_merger<tessera::bfloat16>{.share = 0.25F}.share == 0.25F);
}
