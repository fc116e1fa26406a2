// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <type_traits>

#include <tessera/exec/policy_of.hpp>

#include "support/catch.hpp"

namespace policy_of_test {

struct hundreds_policy {
  int hundreds;
  bool operator==(hundreds_policy const&) const = default;
};
struct hundreds_tuning {
  using policy_type = hundreds_policy;
  constexpr policy_type operator()(int architecture) const { return {architecture / 100}; }
};

}  // namespace policy_of_test

TEST_CASE("policy_of gives the policy of an architecture, as a constant", "[host]") {
  using policy_of_test::hundreds_tuning;
  STATIC_REQUIRE(std::is_same_v<decltype(tessera::policy_of<hundreds_tuning>(0)), policy_of_test::hundreds_policy>);
  STATIC_REQUIRE(tessera::policy_of<hundreds_tuning>(900).hundreds == 9);
  STATIC_REQUIRE(tessera::policy_of<hundreds_tuning>(0) == hundreds_tuning{}(0));
  STATIC_REQUIRE(tessera::policy_of<hundreds_tuning>(tessera::architecture::sm_90a).hundreds == 9);
  STATIC_REQUIRE(tessera::policy_of<hundreds_tuning>(tessera::architecture::host) == hundreds_tuning{}(0));
  int const architecture = 1200;
  CHECK(tessera::policy_of<hundreds_tuning>(architecture).hundreds == 12);
}
