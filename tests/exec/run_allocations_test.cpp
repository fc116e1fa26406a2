// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compiled alone: it replaces the functions that allocate, which are the whole program's
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"

// AddressSanitizer has these functions for itself, with which replaced ones may not be mixed.
#if defined(__SANITIZE_ADDRESS__)
#define TESSERA_TEST_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#define TESSERA_TEST_COUNTS_ALLOCATIONS !__has_feature(address_sanitizer)
#else
#define TESSERA_TEST_COUNTS_ALLOCATIONS 1
#endif

namespace run_allocations_test {

/// The blocks of memory that this thread has got from new.
thread_local std::int64_t allocations = 0;
/// What is written here is needed, so that a compiler leaves out no allocation.
char const* volatile seen = nullptr;

}  // namespace run_allocations_test

#if TESSERA_TEST_COUNTS_ALLOCATIONS
// Never inline: g++ 13 warns where it sees free() but not malloc().
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++run_allocations_test::allocations;
  void* const block = std::malloc(bytes > 0 ? bytes : 1);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
  std::free(block);
}
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept {
  std::free(block);
}
#endif

namespace run_allocations_test {

/// Counts what is allocated while the call runs.
template <class Call>
std::int64_t allocated_by(Call const& call) {
  std::int64_t const before = allocations;
  call();
  return allocations - before;
}

/// Adds one to each value; a group has 32 of them.
struct increase {
  static constexpr int lanes = 32;
  struct scratch_type {};
  tessera::array_view<std::int32_t> values;

  [[nodiscard]] std::int64_t groups() const { return (values.size() + lanes - 1) / lanes; }
  template <class Group>
  void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      if (which * lanes + lane < values.size()) {
        values[which * lanes + lane] += 1;
      }
    }
  }
};

/// Two calls that are no programs: their portable programs are plain functions, which allocate nothing.
template <int>
struct counted_call {
  int* count;
};
template <class Exec, int Number>
void run_portably(Exec const&, counted_call<Number> const& call) {
  ++*call.count;
}
using said_call = counted_call<0>;
using silent_call = counted_call<1>;

/// An executor of the host that has faster programs; none takes a call, and each gives a reason with a number.
struct picky : tessera::cpu {};
template <int Most>
struct picky_model {
  static constexpr char const* name = "a faster program with a name that is too long for a short string";
  template <class Exec, class Call>
  static constexpr tessera::refusal refuses_types() {
    return {};
  }
  template <class Call>
  static tessera::refusal refuses(picky const&, Call const&) {
    return tessera::refusal("the number of some things that a call has", 100, Most == 4 ? "at most 4" : "at most 8");
  }
  template <class Call>
  static void run(picky const&, Call const&) {}
};

}  // namespace run_allocations_test

template <class Call>
struct tessera::models_for<run_allocations_test::picky, Call> {
  using type = model_list<run_allocations_test::picky_model<4>, run_allocations_test::picky_model<8>>;
};

using namespace run_allocations_test;

TEST_CASE("what is allocated is counted", "[host]") {
  if (!TESSERA_TEST_COUNTS_ALLOCATIONS) {
    TESSERA_SKIP("AddressSanitizer allocates");
  }
  CHECK(allocated_by([] {
          std::vector<char> const block(100);
          seen = block.data();
        }) == 1);
  CHECK(allocated_by([] {}) == 0);
}

TEST_CASE("a call whose slower program is told of allocates in the first call alone", "[host]") {
  picky const exec;
  int count = 0;
  auto const call = [&] { tessera::run(exec, said_call{&count}); };
  CHECK((allocated_by(call) > 0 || !TESSERA_TEST_COUNTS_ALLOCATIONS));  // the line on stderr
  CHECK(allocated_by(call) == 0);
  CHECK(allocated_by(call) == 0);
  CHECK(count == 3);
}

TEST_CASE("a call whose slower program nobody is told of never allocates", "[host]") {
  picky exec;
  exec.options.says_slower_programs = false;
  int count = 0;
  CHECK(allocated_by([&] { tessera::run(exec, silent_call{&count}); }) == 0);
  CHECK(allocated_by([&] { tessera::run(exec, silent_call{&count}); }) == 0);
  CHECK(count == 2);
  tessera::cpu const plain;  // it has no faster programs
  CHECK(allocated_by([&] { tessera::run(plain, silent_call{&count}); }) == 0);
  CHECK(count == 3);
}

TEST_CASE("a program that faster ones refuse allocates no more than others: its scratch", "[host]") {
  std::vector<std::int32_t> values(100, 5);
  picky exec;
  exec.threads = 1;
  tessera::cpu const plain{.threads = 1};
  tessera::run(exec, increase{values});
  std::int64_t const of_refused = allocated_by([&] { tessera::run(exec, increase{values}); });
  std::int64_t const of_plain = allocated_by([&] { tessera::run(plain, increase{values}); });
  CHECK(of_refused <= 1);  // some compilers leave out that of an empty scratch
  CHECK(of_refused == of_plain);
  std::vector<std::int32_t> none;
  CHECK(allocated_by([&] { tessera::run(exec, increase{none}); }) == 0);
  CHECK(values == std::vector<std::int32_t>(100, 8));
}

TEST_CASE("a slower program that is refused says why in each call", "[host]") {
  picky exec;
  exec.options.refuses_slower_programs = true;
  int count = 0;
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_WITH(tessera::run(exec, said_call{&count}), tessera_test::contains("is 100 but must be at most 4"));
  }
  CHECK(count == 0);
}
