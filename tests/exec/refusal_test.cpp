// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/exec/refusal.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a refusal says why, with a number or without, and none says nothing", "[host]") {
  CHECK_FALSE(refusal{});
  CHECK(refusal{}.text().empty());
  CHECK_FALSE(unless(true, "there are no rows"));
  CHECK_FALSE(unless(true, "the stride", 64, "1"));
  CHECK(unless(false, "there are no rows").text() == "there are no rows");
  CHECK(unless(false, "the stride", -64, "1").text() == "the stride is -64 but must be 1");
}

TEST_CASE("of several refusals the first counts", "[host]") {
  constexpr refusal first = first_of(refusal{}, refusal{"one"}, refusal{"two"});
  static_assert(static_cast<bool>(first));
  static_assert(!first_of(refusal{}, refusal{}));
  CHECK(first.text() == "one");
  CHECK(first_of(refusal{"zero"}, first).text() == "zero");
}
