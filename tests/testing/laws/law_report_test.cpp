// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <tessera/testing/laws/law_report.hpp>

#include "support/catch.hpp"

using tessera::testing::is_close;
using tessera::testing::law_report;

TEST_CASE("a report keeps the first counterexample of each law", "[host]") {
  law_report report;
  report.expect(true, "water is wet", "never shown");
  CHECK(report.is_empty());
  report.expect(false, "two is one", "at 2");
  report.expect(false, "two is one", "at 3");
  report.expect(false, "up is down");
  CHECK(report.failures() == std::vector<std::string>{"two is one: at 2", "up is down"});
  CHECK(report.text() == "two is one: at 2\nup is down\n");
  CHECK(report.mentions("is down"));
  CHECK_FALSE(report.mentions("at 3"));
}

TEST_CASE("the failures of a part carry its name", "[host]") {
  law_report part;
  part.expect(false, "two is one");
  law_report whole;
  whole.include("range(): ", part);
  CHECK(whole.failures() == std::vector<std::string>{"range(): two is one"});
}

TEST_CASE("closeness is relative for large numbers, absolute for small ones, and exact for infinities", "[host]") {
  double const infinite = std::numeric_limits<double>::infinity();
  CHECK(is_close(1000.0, 1000.9, 1e-3));
  CHECK_FALSE(is_close(1000.0, 1001.2, 1e-3));
  CHECK(is_close(0.0, 0.0009, 1e-3));
  CHECK(is_close(infinite, infinite, 1e-3));
  CHECK_FALSE(is_close(infinite, -infinite, 1e-3));
  CHECK_FALSE(is_close(1.0, std::nan(""), 1e9));
  CHECK(is_close(std::nan(""), std::nan(""), 0.0));
}
