// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/map/reverse_kl.hpp>
#include <tessera/testing/laws/map/divergence.hpp>

#include "support/catch.hpp"
#include "support/divergence_rows.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("reverse_kl keeps the laws of divergences", "[host]") {
  for (std::int64_t const entries : {1, 2, 9, 300}) {
    CHECK(testing::check_divergence_laws(reverse_kl{}, divergence_rows(entries)).text() == "");
  }
}

TEST_CASE("reverse_kl is its formula, also where probabilities are tiny", "[host]") {
  for (float const log_p : {-0.1F, -1.0F, -20.0F, -80.0F}) {
    for (float const log_q : {-0.2F, -1.0F, -30.0F, -85.0F}) {
      double const q = std::exp(static_cast<double>(log_q));
      double const expected = q * (static_cast<double>(log_q) - static_cast<double>(log_p));
      CAPTURE(log_p, log_q);
      CHECK(std::fabs(static_cast<double>(reverse_kl{}.value(log_p, log_q)) - expected) <= 1e-6 * std::fabs(expected));
    }
  }
}

TEST_CASE("reverse_kl is infinite where the teacher lacks what the student has, and only there", "[host]") {
  CHECK(reverse_kl{}.value(-infinity, -1.0F) == infinity);
  CHECK(reverse_kl{}.value(-1.0F, -infinity) == 0.0F);
  CHECK(reverse_kl{}.slope(-1.0F, -infinity) == 0.0F);
}
