// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

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

/// Asks as tessera::cuda does, and counts how often. Only what lies at `refused` is out of reach. Tests have devices of
/// their own.
struct counting : cpu {
  int device = 0;
  void const* refused = nullptr;
  std::int64_t* asked = nullptr;
  void check_reach(char const* function, char const* what, void const* first) const {
    detail::reached_addresses::ask_once(first, device, [&] {
      ++*asked;
      check<value_error>(first != refused, function, ": the ", what, " are out of reach");
    });
  }
};

/// Has a list of its own, as sources of weights have.
struct with_list {
  array_view<float const> list;
  template <class Use>
  void each_view(Use const& use) const {
    use("numbers", list);
  }
};

/// Numbers in memory for linear layers, at fixed distances: addresses in any places may share a slot of what a thread
/// remembers, once in a few hundred runs.
struct layer_operands {
  std::array<float, 12> inputs{};
  std::array<float, 20> weights{};
  std::array<float, 5> bias{};
  std::array<float, 15> outputs{};

  template <class Exec>
  void multiply(Exec const& exec) {
    linear<float>::forward(exec, view<float const, 2>(inputs.data(), {3, 4}),
                           view<float const, 2>(weights.data(), {5, 4}), view<float const, 1>(bias.data(), 5),
                           view<float, 2>(outputs.data(), {3, 5}));
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
// A std::vector is a list, which calls refuse by its address. It is no matrix and no heads: such calls do not compile.
static_assert(std::is_convertible_v<std::vector<float>&, array_view<float>>);
static_assert(!std::is_convertible_v<std::vector<float>&, matrix_view<float>>);
static_assert(!std::is_convertible_v<std::vector<float>&, head_view<float>>);

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

TEST_CASE("views of any rank, workspaces and views of objects are asked for, in their order", "[host]") {
  std::vector<float> numbers(64);
  alignas(256) std::array<std::byte, 256> block{};
  workspace_plan plan("f");
  plan.add<float>("sums", 8);
  workspace const space(plan, array_view<std::byte>(block.data(), 256));
  workspace const empty(workspace_plan("f"), array_view<std::byte>(block.data(), 256));
  matrix_view<float> const matrix(numbers.data(), {8, 8});
  head_view<float> const heads(numbers.data() + 1, {1, 1, 3, 4});
  picky const first{numbers.data()};
  CHECK_NOTHROW(check_reach(first, "f", "matrix", matrix, "empty workspace", empty, "no heads", head_view<float>()));
  CHECK_THROWS_WITH(check_reach(first, "f", "matrix", matrix, "heads", heads), "f: the heads are out of reach");
  CHECK_THROWS_WITH(check_reach(first, "f", "matrix", matrix, "bytes", space, "heads", heads),
                    "f: the bytes are out of reach");
  CHECK_NOTHROW(check_reach(picky{block.data()}, "f", "bytes", space));
  CHECK_NOTHROW(check_reach_of(first, "f", with_list{{numbers.data(), 3}}));
  CHECK_NOTHROW(check_reach_of(first, "f", 3));
  CHECK_THROWS_WITH(check_reach_of(first, "f", with_list{{numbers.data() + 1, 3}}), "f: the numbers are out of reach");
}

TEST_CASE("the second call with the same addresses asks nothing", "[host]") {
  layer_operands operands;
  std::int64_t asked = 0;
  counting exec;
  exec.device = 1001;
  exec.asked = &asked;
  operands.multiply(exec);
  CHECK(asked == 4);
  operands.multiply(exec);
  CHECK(asked == 4);
  layer_operands others;
  others.multiply(exec);
  CHECK(asked == 8);
  exec.device = 1002;  // what one device reads, another one need not
  operands.multiply(exec);
  CHECK(asked == 12);
}

TEST_CASE("an address out of reach is refused in each call", "[host]") {
  layer_operands operands;
  std::int64_t asked = 0;
  counting exec;
  exec.device = 1003;
  exec.asked = &asked;
  exec.refused = operands.bias.data();
  for (int call = 0; call < 3; ++call) {
    CHECK_THROWS_WITH(operands.multiply(exec), "linear.forward: the biases are out of reach");
  }
  CHECK(asked == 3 + 3);   // three operands once, and the bias three times
  exec.refused = nullptr;  // as where the memory is registered now
  CHECK_NOTHROW(operands.multiply(exec));
}

TEST_CASE("addresses that take each other's slots are asked for again, and nothing else changes", "[host]") {
  std::vector<float> many(100'000);
  std::int64_t asked = 0;
  counting exec;
  exec.device = 1004;
  exec.asked = &asked;
  exec.refused = many.data() + 777;
  std::int64_t wrong = 0;
  for (int round = 0; round < 2; ++round) {
    for (float const& number : many) {
      bool const is_refused = &number == exec.refused;
      bool threw = false;
      try {
        check_reach(exec, "f", "numbers", array_view<float const>(&number, 1));
      } catch (value_error const&) {
        threw = true;
      }
      wrong += threw != is_refused ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
  CHECK(asked > 100'000);
  std::int64_t const before = asked;
  check_reach(exec, "f", "numbers", array_view<float const>(&many.back(), 1));
  CHECK(asked == before);
}

TEST_CASE("each thread asks for itself", "[host][threads]") {
  layer_operands operands;
  std::int64_t asked = 0;
  counting exec;
  exec.threads = 1;
  exec.device = 1005;
  exec.asked = &asked;
  operands.multiply(exec);
  CHECK(asked == 4);
  std::thread([&] { operands.multiply(exec); }).join();
  CHECK(asked == 8);
}
