// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <tessera/exec/check_reach.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"
#include "support/placed_caches.hpp"
#include "support/placed_operands.hpp"

using namespace tessera;
using tessera_test::idle_executor;
using tessera_test::message_of;
using tessera_test::operand_places;

namespace {

struct alignas(256) block {
  std::byte bytes[4096];
};

/// Memory that programs reach, and memory that they do not.
struct memory_of_both {
  block here;
  block there;
};

/// Runs calls with each operand out of reach, and with none.
template <class Calls>
void check_calls(Calls const& calls) {
  static memory_of_both memory;
  std::vector<std::string> asked;
  auto const reach = [&](char const* function, char const* what, void const* first) {
    asked.emplace_back(what);
    check<value_error>(first != &memory.there, function, ": the ", what, " are out of reach");
  };
  idle_executor<decltype(reach)> const exec{reach};
  calls(exec, [&](char const* function, auto const& operands, auto const& call) {
    for (char const* const operand : operands) {
      INFO(function << ", " << operand);
      CHECK(message_of([&] {
              call(operand_places{&memory.here, &memory.there, operand});
            }) == std::string(function) + ": the " + operand + " are out of reach");
    }
    asked.clear();
    CHECK(message_of([&] { call(operand_places{&memory.here}); }) == "");
    for (char const* const operand : operands) {
      INFO(function << ", " << operand);
      CHECK(std::count(asked.begin(), asked.end(), operand) > 0);
    }
  });
}

}  // namespace

TEST_CASE("products, and what is made of matrices, refuse each operand out of reach", "[host]") {
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_products(exec, visit); });
}

TEST_CASE("losses and their gradients refuse each operand out of reach", "[host]") {
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_losses(exec, visit); });
}

TEST_CASE("attention refuses each operand out of reach", "[host]") {
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_attention(exec, visit); });
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_codes(exec, visit); });
}

TEST_CASE("caches refuse each operand out of reach", "[host]") {
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_pages(exec, visit); });
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_offloaded_caches(exec, visit); });
}

TEST_CASE("searches for directions refuse each operand out of reach", "[host]") {
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_searches(exec, visit); });
}

TEST_CASE("compressed weights refuse each operand out of reach", "[host]") {
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_weights(exec, visit); });
}
