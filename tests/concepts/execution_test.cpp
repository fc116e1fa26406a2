// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Group, Program, Executor and MemoryResource: models and non-models.  That this compiles is the test.
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/group.hpp>
#include <tessera/concepts/program.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

namespace {

using namespace tessera;

static_assert(Group<serial_group<1>>);
static_assert(Group<serial_group<32>>);
static_assert(Group<testing::adversary_group<128>>);
static_assert(Group<detail::group_archetype<32>>);
static_assert(!Group<int>);
static_assert(!Group<std::vector<int>>);

struct callable {
  static constexpr int lanes = 32;
  struct scratch_type {
    int sums[32];
  };
  template <Group G>
  TESSERA_FN void operator()(G const&, std::int64_t, scratch_type&) const {}
};
static_assert(Program<callable>);

struct owns_text : callable {
  std::string text;
};
struct scratch_with_constructor : callable {
  struct scratch_type {
    int sum = 0;
  };
};
struct not_const {
  static constexpr int lanes = 32;
  struct scratch_type {};
  template <class G>
  void operator()(G const&, std::int64_t, scratch_type&) {}
};
static_assert(!Program<owns_text>);
static_assert(!Program<scratch_with_constructor>);
static_assert(!Program<not_const>);
static_assert(!Program<int>);

static_assert(Executor<cpu>);
static_assert(Executor<testing::adversary>);
static_assert(!Executor<callable>);
static_assert(!Executor<memory_handle>);

static_assert(MemoryResource<host_memory>);
static_assert(MemoryResource<arena>);
static_assert(MemoryResource<tracking_memory>);
static_assert(MemoryResource<memory_handle>);
static_assert(!MemoryResource<std::allocator<int>>);

}  // namespace

TEST_CASE("any executor runs any program", "[host]") {
  CHECK_NOTHROW(cpu{}.run(callable{}, 3));
  CHECK_NOTHROW(testing::adversary{}.run(callable{}, 3));
}
