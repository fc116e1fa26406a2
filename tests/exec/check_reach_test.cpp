// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Reads what lies at `known` and nothing else.
struct picky {
  void const* known;
  void check_reach(char const* function, char const* what, void const* first) const {
    check<value_error>(first == known, function, ": the ", what, " are out of reach");
  }
};

template <class T>
struct from_a_pool : std::allocator<T> {};

static_assert(detail::is_host_container<std::vector<float>>);
static_assert(detail::is_host_container<std::array<float, 3>>);
static_assert(detail::is_host_container<std::string>);
static_assert(!detail::is_host_container<std::vector<float, from_a_pool<float>>>);
static_assert(!detail::is_host_container<array_view<float>>);
static_assert(!detail::is_host_container<buffer<float>>);
static_assert(detail::has_own_memory<picky>);
static_assert(!detail::has_own_memory<cpu>);

}  // namespace

TEST_CASE("an executor with memory of its own is asked where a list lies, unless it is empty", "[host]") {
  float value = 0;
  buffer<float> owned(2);
  CHECK_NOTHROW(check_reach(picky{&value}, "f", "keys", array_view<float>(&value, 1)));
  CHECK_NOTHROW(check_reach(picky{owned.data()}, "f", "keys", owned));
  CHECK_NOTHROW(check_reach(picky{&value}, "f", "keys", array_view<float>()));
  CHECK_THROWS_WITH(check_reach(picky{&value}, "f", "keys", owned), "f: the keys are out of reach");
}

TEST_CASE("every list is in reach of the CPU", "[host]") {
  std::vector<float> vector(2);
  CHECK_NOTHROW(check_reach(cpu{.threads = 1}, "f", "keys", vector));
}
