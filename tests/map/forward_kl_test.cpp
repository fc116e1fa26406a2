// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/map/forward_kl.hpp>
#include <tessera/testing/laws/map/divergence.hpp>

#include "support/catch.hpp"
#include "support/divergence_rows.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("forward_kl keeps the laws of divergences", "[host]") {
  for (std::int64_t const entries : {1, 2, 9, 300}) {
    CHECK(testing::check_divergence_laws(forward_kl{}, divergence_rows(entries)).text() == "");
  }
}

TEST_CASE("forward_kl is its formula, also where probabilities are tiny", "[host]") {
  for (float const log_p : {-0.1F, -1.0F, -20.0F, -80.0F}) {
    for (float const log_q : {-0.2F, -1.0F, -30.0F, -85.0F}) {
      double const p = std::exp(static_cast<double>(log_p));
      double const expected = p * (static_cast<double>(log_p) - static_cast<double>(log_q));
      CAPTURE(log_p, log_q);
      CHECK(std::fabs(static_cast<double>(forward_kl{}.value(log_p, log_q)) - expected) <= 1e-6 * std::fabs(expected));
    }
  }
}

TEST_CASE("forward_kl is infinite where the student lacks what the teacher has, and only there", "[host]") {
  CHECK(forward_kl{}.value(-1.0F, -infinity) == infinity);
  CHECK(forward_kl{}.value(-infinity, -1.0F) == 0.0F);
  CHECK(forward_kl{}.slope(-infinity, -1.0F) == 0.0F);
}
