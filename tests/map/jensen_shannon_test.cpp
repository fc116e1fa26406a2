// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/map/jensen_shannon.hpp>
#include <tessera/testing/laws/map/divergence.hpp>

#include "support/catch.hpp"
#include "support/divergence_rows.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("jensen_shannon keeps the laws of divergences", "[host]") {
  for (std::int64_t const entries : {1, 2, 9, 300}) {
    for (float const beta : {0.1F, 0.5F, 0.875F}) {
      CHECK(testing::check_divergence_laws(jensen_shannon{beta}, divergence_rows(entries)).text() == "");
    }
  }
}

TEST_CASE("jensen_shannon is finite where one side has nothing, and where probabilities are denormal", "[host]") {
  jensen_shannon const half;
  CHECK(std::fabs(half.value(0.0F, -infinity) - 0.5F * std::log(2.0F)) <= 1e-6F);
  CHECK(std::fabs(half.value(-infinity, 0.0F) - 0.5F * std::log(2.0F)) <= 1e-6F);
  CHECK(half.slope(0.0F, -infinity) == 0.0F);
  CHECK(std::fabs(half.slope(-infinity, 0.0F) - 0.5F * std::log(2.0F)) <= 1e-6F);
  for (float const log_p : {-95.0F, -100.0F, -103.0F, -110.0F}) {
    for (float const log_q : {-95.0F, -103.2F, -110.0F}) {
      CHECK(std::fabs(half.value(log_p, log_q)) < 1e-30F);
      CHECK(std::fabs(half.slope(log_p, log_q)) < 1e-30F);
    }
  }
}

TEST_CASE("jensen_shannon refuses a beta that makes a mixture of one", "[host]") {
  jensen_shannon{0.25F}.check_values("f");
  CHECK(message_of([] { jensen_shannon{0.0F}.check_values("f"); }) ==
        "f: the beta of jensen_shannon is 0.000000 but must be above 0 and below 1");
  CHECK(message_of([] { jensen_shannon{1.0F}.check_values("f"); }) ==
        "f: the beta of jensen_shannon is 1.000000 but must be above 0 and below 1");
}
