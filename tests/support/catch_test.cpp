// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <cstdlib>

TEST_CASE("a test name may hold commas, [brackets], a half-open [0, 1) and \"quotes\"; each reaches ctest", "[host]") {
  CHECK(1 + 1 == 2);
}

TEST_CASE("contains matches a part of a text and nothing else", "[host]") {
  CHECK_THAT("keys have 96 channels", tessera_test::contains("96"));
  CHECK_THAT("keys have 96 channels", !tessera_test::contains("128"));
}

TEST_CASE("the environment asks for a thing with any value but nothing and 0", "[host]") {
  setenv("TESSERA_TEST_VARIABLE", "1", 1);
  CHECK(tessera_test::environment_asks_for("TESSERA_TEST_VARIABLE"));
  setenv("TESSERA_TEST_VARIABLE", "0", 1);
  CHECK_FALSE(tessera_test::environment_asks_for("TESSERA_TEST_VARIABLE"));
  unsetenv("TESSERA_TEST_VARIABLE");
  CHECK_FALSE(tessera_test::environment_asks_for("TESSERA_TEST_VARIABLE"));
}
