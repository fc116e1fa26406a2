// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <string>

#include <tessera/version.hpp>

#include "support/catch.hpp"

TEST_CASE("the version has three numbers with dots between them", "[host]") {
  std::string const version = TESSERA_VERSION_STRING;
  int dots = 0;
  for (std::size_t i = 0; i < version.size(); ++i) {
    bool const is_digit = version[i] >= '0' && version[i] <= '9';
    bool const is_inside = i > 0 && i + 1 < version.size() && version[i - 1] != '.' && version[i + 1] != '.';
    CHECK((is_digit || (version[i] == '.' && is_inside)));
    dots += version[i] == '.' ? 1 : 0;
  }
  CHECK(dots == 2);
}
