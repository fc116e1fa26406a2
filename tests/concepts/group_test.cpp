// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/concepts/group.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace group_test {

/// Groups of users' that say no architecture, another thing by this name, and one.
struct says_nothing {};
struct says_other {
  static constexpr int architecture = 900;
};
struct says_new {
  static constexpr tessera::architecture architecture = tessera::architecture::sm_120;
};

}  // namespace group_test

TEST_CASE("tags of architectures are ordered by age and numbered as by nvcc", "[host]") {
  STATIC_REQUIRE(number_of(architecture::host) == 0);
  STATIC_REQUIRE(number_of(architecture::sm_90) == 900);
  STATIC_REQUIRE(number_of(architecture::sm_90a) == 900);
  STATIC_REQUIRE(number_of(architecture::sm_120) == 1200);
  STATIC_REQUIRE(architecture::host < architecture::sm_80);
  STATIC_REQUIRE(architecture::sm_89 < architecture::sm_90);
  STATIC_REQUIRE(architecture::sm_90 < architecture::sm_90a);
  STATIC_REQUIRE(architecture::sm_90a < architecture::sm_100);
  STATIC_REQUIRE(is_specific(architecture::sm_90a));
  STATIC_REQUIRE(!is_specific(architecture::sm_90));
  STATIC_REQUIRE(!is_specific(architecture::host));
}

TEST_CASE("tags are made of nvcc's numbers", "[host]") {
  STATIC_REQUIRE(architecture_numbered(0) == architecture::host);
  STATIC_REQUIRE(architecture_numbered(860) == architecture::sm_86);
  STATIC_REQUIRE(architecture_numbered(900, true) == architecture::sm_90a);
  STATIC_REQUIRE(number_of(architecture_numbered(870)) == 870);
  STATIC_REQUIRE(architecture_numbered(870) > architecture::sm_86);
}

TEST_CASE("a group that says no architecture counts as one of the host", "[host]") {
  using namespace group_test;
  STATIC_REQUIRE(architecture_of<serial_group<32>> == architecture::host);
  STATIC_REQUIRE(architecture_of<says_nothing> == architecture::host);
  STATIC_REQUIRE(architecture_of<says_other> == architecture::host);
  STATIC_REQUIRE(architecture_of<says_new> == architecture::sm_120);
}
