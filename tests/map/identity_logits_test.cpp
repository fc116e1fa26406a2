// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>

#include <tessera/concepts/logit_map.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/testing/laws/logit_map.hpp>

#include "support/catch.hpp"
#include "support/map_sums.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Changes nothing either, but says nothing of it.
struct derived : identity_logits {};

static_assert(LogitMap<identity_logits> && LogitMap<derived>);
static_assert(leaves_logits<identity_logits> && !leaves_logits<derived>);

}  // namespace

TEST_CASE("the identity of logits leaves every bit, with a slope of one", "[host]") {
  for (float const logit : some_sums()) {
    CHECK(bit_cast<std::uint32_t>(identity_logits{}(logit, 1, 2)) == bit_cast<std::uint32_t>(logit));
    CHECK(identity_logits{}.slope(logit, 1, 2) == 1.0F);
  }
  STATIC_REQUIRE(identity_logits{}.steepest() == 1.0F);
  CHECK(testing::check_logit_map_laws(identity_logits{}, {-100.0F, -1.0F, 0.0F, 0.5F, 30.0F, 1000.0F}, 3).text() == "");
}
