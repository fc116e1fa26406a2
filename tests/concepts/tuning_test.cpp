// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/concepts/tuning.hpp>
#include <tessera/config.hpp>
#include <tessera/testing/laws/tuning.hpp>

#include "support/catch.hpp"

using tessera::Tuning;
using tessera::testing::check_laws;

namespace tuning_test {

struct policy {
  int rows;
  int stages;
  bool operator==(policy const&) const = default;
};

/// A user's own Tuning, as the concept's header shows it.
struct my_tuning {
  using policy_type = policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    return architecture >= 900 ? policy_type{128, 4} : policy_type{64, 2};
  }
  static constexpr bool is_valid(policy_type const& chosen) { return chosen.rows > 0 && chosen.stages > 0; }
};

/// Knows nothing about what came after it.
struct for_one_architecture : my_tuning {
  constexpr policy operator()(int architecture) const { return architecture == 900 ? policy{128, 4} : policy{0, 0}; }
};

struct only_at_run_time {
  using policy_type = policy;
  policy_type operator()(int) const { return {64, 2}; }
};

static_assert(Tuning<my_tuning>);
static_assert(my_tuning{}(900).rows == 128);
static_assert(!Tuning<only_at_run_time>);
static_assert(!Tuning<policy>);

}  // namespace tuning_test

using namespace tuning_test;

TEST_CASE("a user's own tuning keeps the laws", "[host]") {
  CHECK(check_laws<my_tuning>().text().empty());
}

TEST_CASE("a tuning without a policy for other architectures is caught", "[host]") {
  CHECK(check_laws<for_one_architecture>().mentions("every policy is valid: architecture 0"));
}
