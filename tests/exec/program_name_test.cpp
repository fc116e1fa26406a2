// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>
#include <string_view>

#include <tessera/exec/program_name.hpp>

#include "support/catch.hpp"

namespace program_name_test {

struct plain_program {};
template <class T, int Lanes>
struct of_types {
  struct inner {};
};
namespace deeper {
template <class... Ts>
struct many {};
}  // namespace deeper

}  // namespace program_name_test

using namespace program_name_test;
using tessera::program_name;

TEST_CASE("a program's name has neither namespaces nor template arguments", "[host]") {
  CHECK(program_name<plain_program>() == "plain_program");
  CHECK(program_name<of_types<float, 32>>() == "of_types");
  CHECK(program_name<of_types<of_types<plain_program, 1>, 2>>() == "of_types");
  CHECK(program_name<deeper::many<plain_program, deeper::many<>, int>>() == "many");
  CHECK(program_name<deeper::many<>>() == "many");
  CHECK(program_name<int>() == "int");
}

TEST_CASE("a program's name is known to the compiler and lives on", "[host]") {
  STATIC_REQUIRE(program_name<plain_program>().size() == 13);
  std::string_view const first = program_name<plain_program>();
  std::string const copy(first);
  CHECK(program_name<plain_program>().data() == first.data());
  CHECK(first == copy);
}
