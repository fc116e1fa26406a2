// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <type_traits>

#include <tessera/concepts/merger.hpp>
#include <tessera/core/error.hpp>
#include <tessera/merge/average.hpp>
#include <tessera/merge/direction_merger.hpp>
#include <tessera/merge/slerp.hpp>

#include "merge/pair_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::merge_and_restore;

namespace {

/// A user's rule: always the direction of the first vector.
struct first_direction {
  TESSERA_FN static mix_weights weights(pair_products const& measured) {
    return {measured.first > 0 ? 1.0F / length_of(measured.first) : 0.0F, 0.0F};
  }
};

}  // namespace

TEST_CASE("a user's rule gives the direction, and the kept factors the lengths", "[host]") {
  using merger = direction_merger<first_direction, float, preserve_length>;
  static_assert(Merger<merger>);
  auto const pair = tessera_test::random_pair(3, 2.0);
  auto const restored = merge_and_restore(merger{}, pair);
  CHECK(tessera_test::error_of(restored.first, pair.first) < 1e-6);
  double const length = testing::detail::norm(pair.second) / testing::detail::norm(pair.first);
  for (std::size_t i = 0; i < pair.first.size(); ++i) {
    CHECK(restored.second[i] == Approx(length * double{pair.first[i]}).margin(1e-5));
  }
}

TEST_CASE("mergers have a share where their rule has one", "[host]") {
  static_assert(std::is_same_v<average_direction_merger<float>::share_type, tessera::no_share>);
  static_assert(std::is_same_v<tessera::norm_weighted_slerp_merger<float>::share_type, tessera::no_share>);
  static_assert(std::is_same_v<slerp_merger<float>::share_type, float>);
  CHECK(slerp_merger<float>{}.share == 0.6F);
  CHECK(slerp_merger<tessera::bfloat16>{.share = 0.25F}.share == 0.25F);
}

TEST_CASE("a merger names the function that got a share outside of 0 to 1", "[host]") {
  for (float const share : {0.0F, 0.6F, 1.0F}) {
    CHECK_NOTHROW(slerp_merger<float>{.share = share}.check_options("f"));
  }
  CHECK_THROWS_AS(slerp_merger<float>{.share = NAN}.check_options("f"), tessera::value_error);
  CHECK_THROWS_WITH(slerp_merger<float>{.share = 2.0F}.check_options("f"),
                    "f: the share of the merger is 2.000000 but must be from 0 to 1");
  CHECK_NOTHROW(average_direction_merger<float>{}.check_options("f"));
}
