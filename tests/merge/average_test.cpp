// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>

#include <tessera/merge/average.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/testing/laws/merger.hpp>

#include "merge/pair_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::merge_and_restore;

TEMPLATE_TEST_CASE("the mergers to compare with keep the laws", "[host]", average_merger<float>,
                   longer_vector_merger<float>, average_direction_merger<float>, average_direction_merger<bfloat16>,
                   (average_direction_merger<float, least_squares>), (slerp_merger<float, least_squares>)) {
  auto const report =
      testing::check_laws<TestType>({random_pair(1, 1.0), random_pair(5, 40.0), random_pair(9, 1e-12)}, 4e-3);
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
