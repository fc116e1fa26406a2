// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>
#include <type_traits>

#include <tessera/core/error.hpp>

#include "support/catch.hpp"

using namespace tessera;

static_assert(std::is_base_of_v<std::runtime_error, error>);
static_assert(std::is_base_of_v<error, shape_error>);
static_assert(std::is_base_of_v<error, value_error>);
static_assert(std::is_base_of_v<error, device_error>);
static_assert(std::is_base_of_v<error, corrupt_data>);
static_assert(!std::is_base_of_v<value_error, shape_error>);

TEST_CASE("errors carry their message, their code and their position", "[host]") {
  CHECK(std::string(shape_error("f: 3 but 4").what()) == "f: 3 but 4");
  CHECK(device_error("f", 35).code() == 35);
  CHECK(corrupt_data("f", std::int64_t{1} << 40).position() == std::int64_t{1} << 40);
  CHECK(corrupt_data("f").position() == -1);
}
