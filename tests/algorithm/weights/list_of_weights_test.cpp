// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>
#include <vector>

#include <tessera/algorithm/weights/list_of_weights.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("weights of the CPU are taken from whatever holds them", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<float> vector(3);
  std::array<float, 4> array{};
  buffer<float> owned(5);
  CHECK(detail::list_of_weights<float const>(exec, "f", vector).size() == 3);
  CHECK(detail::list_of_weights<float>(exec, "f", vector).data == vector.data());
  CHECK(detail::list_of_weights<float>(exec, "f", array).size() == 4);
  CHECK(detail::list_of_weights<float>(exec, "f", owned).data == owned.data());
  CHECK(detail::list_of_weights<float const>(exec, "f", array_view<float>(vector)).size() == 3);
}
