// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Tuning.
#pragma once

#include <string>

#include <tessera/concepts/tuning.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

/// Checks T on the CPU (0), on every architecture number from 500 to 2000, and on some that are far off. Where T has
/// `static bool is_valid(policy_type)`, each policy must pass it.
template <Tuning T>
law_report check_laws() {
  law_report report;
  auto const check = [&report](int architecture) {
    std::string const name = "architecture " + std::to_string(architecture);
    auto const policy = T{}(architecture);
    report.expect(policy == T{}(architecture), "an architecture has one policy", name);
    if constexpr (requires { T::is_valid(policy); }) {
      report.expect(T::is_valid(policy), "every policy is valid", name);
    }
  };
  check(0);
  for (int architecture = 500; architecture <= 2000; architecture += 10) {
    check(architecture);
  }
  check(1);
  check(1000000);
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
