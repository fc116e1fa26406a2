// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/core/arch.hpp>

#include "support/catch.hpp"

namespace {

template <tessera::arch Arch>
constexpr bool has_fp8 = Arch >= tessera::sm_89;

}  // namespace

TEST_CASE("architectures are ordered by major, then minor capability", "[host][arch]") {
  STATIC_REQUIRE(tessera::sm_80 < tessera::sm_89);
  STATIC_REQUIRE(tessera::sm_89 < tessera::sm_90);
  STATIC_REQUIRE_FALSE(tessera::sm_90 < tessera::sm_90);
  STATIC_REQUIRE(tessera::sm_90 <= tessera::sm_90);
  STATIC_REQUIRE(tessera::arch{10, 0} > tessera::sm_90);
  STATIC_REQUIRE(tessera::arch{12, 1} >= tessera::arch{12, 0});
  STATIC_REQUIRE(tessera::sm_80 != tessera::arch{8, 6});
}

TEST_CASE("an architecture may be a template argument and has the compiler's number", "[host][arch]") {
  STATIC_REQUIRE(has_fp8<tessera::sm_90>);
  STATIC_REQUIRE_FALSE(has_fp8<tessera::sm_80>);
  STATIC_REQUIRE(tessera::sm_89.number() == 89);
  STATIC_REQUIRE(tessera::arch{12, 0}.number() == 120);
}
