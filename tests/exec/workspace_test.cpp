// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/workspace.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("regions are aligned, apart, and found again in the block", "[host]") {
  workspace_plan plan("test.run");
  auto const bytes = plan.add<std::uint8_t>("bytes", 3);
  auto const numbers = plan.add<double>("numbers", 40);
  auto const nothing = plan.add<float>("nothing", 0);
  CHECK(bytes.offset == 0);
  CHECK(numbers.offset == 256);
  CHECK(nothing.offset == 768);
  CHECK(plan.bytes() == 768);
  buffer<std::byte> memory(plan.bytes());
  workspace const space(plan, memory);
  CHECK(space.bytes() == 768);
  CHECK(space[numbers].size() == 40);
  CHECK(static_cast<void*>(space[numbers].data) == memory.data() + 256);
  CHECK(space[nothing].is_empty());
}

TEST_CASE("a workspace that is too small is refused with both sizes and the function's name", "[host]") {
  workspace_plan plan("neuzip.encode");
  static_cast<void>(plan.add<float>("sums", 1000));
  buffer<std::byte> memory(4095);
  CHECK_THROWS_WITH(workspace(plan, memory), "neuzip.encode: the workspace has 4095 bytes but the plan needs 4096");
}

TEST_CASE("a workspace off its alignment or with gaps is refused", "[host]") {
  workspace_plan plan("f");
  static_cast<void>(plan.add<float>("sums", 10));
  buffer<std::byte> memory(2048);
  CHECK_THROWS_WITH(workspace(plan, memory.view().slice(0, 4, 1024)),
                    "f: the workspace starts 4 bytes past a multiple of 256");
  CHECK_THROWS_AS(workspace(plan, array_view<std::byte>(memory.data(), {1024}, {2})), shape_error);
}

TEST_CASE("sizes that do not fit 63 bits are refused by name", "[host]") {
  workspace_plan plan("f");
  CHECK_THROWS_WITH(plan.add<double>("table", std::int64_t{1} << 61),
                    "f: table: 2305843009213693952 times 8 is not a size");
  static_cast<void>(plan.add<char>("almost all", std::numeric_limits<std::int64_t>::max() - 1023));
  CHECK_THROWS_AS(plan.add<char>("one too many", 4096), shape_error);
  CHECK_THROWS_AS(plan.add<char>("negative", -1), shape_error);
}

TEST_CASE("a region of another plan that lies outside is refused", "[host]") {
  workspace_plan large("f");
  static_cast<void>(large.add<float>("first", 100));
  auto const second = large.add<float>("second", 100);
  workspace_plan const small("g");
  workspace const space(small, array_view<std::byte>());
  CHECK_THROWS_AS(space[second], shape_error);
}

TEST_CASE("a plan describes itself as a table", "[host]") {
  workspace_plan plan("test.run");
  static_cast<void>(plan.add<float>("sums", 100));
  static_cast<void>(plan.add<char>("a longer name", 1));
  CHECK(plan.describe() ==
        "test.run\n"
        "  sums                          400 bytes\n"
        "  a longer name                   1 bytes\n"
        "  total                         768 bytes\n");
}

TEST_CASE("a plan of sizes alone gives the same offsets and keeps no names", "[host]") {
  workspace_plan plan("test.run");
  workspace_plan sizes("test.run", workspace_plan::record::sizes);
  for (std::int64_t const count : {3, 0, 40, 256, 257}) {
    auto const one = plan.add<double>("numbers", count);
    auto const other = sizes.add<double>("numbers", count);
    CHECK(one.offset == other.offset);
    CHECK(one.count == other.count);
  }
  CHECK(sizes.bytes() == plan.bytes());
  CHECK(plan.entries().size() == 5);
  CHECK(sizes.entries().empty());
  CHECK_THROWS_WITH(sizes.add<double>("table", std::int64_t{1} << 61),
                    "test.run: table: 2305843009213693952 times 8 is not a size");
}

TEST_CASE("a workspace of a smaller call's plan is refused with the call and its extents", "[host]") {
  workspace_plan plan("test.run");
  static_cast<void>(plan.add<float>("sums", 100));
  buffer<std::byte> memory(plan.bytes());
  workspace const space(plan, memory);
  CHECK_NOTHROW(space.check_room("test.run", 512, 7, " tokens"));
  CHECK_THROWS_AS(space.check_room("test.run", 513, 7, " tokens"), shape_error);
  CHECK_THROWS_WITH(space.check_room("test.run", 1024, 7, " tokens of ", 64, " channels"),
                    "test.run: the workspace is of a plan of 512 bytes but 7 tokens of 64 channels need 1024");
}

TEST_CASE("a block without memory is no workspace of a plan that has bytes", "[host]") {
  workspace_plan plan("f");
  static_cast<void>(plan.add<float>("sums", 10));
  CHECK_THROWS_WITH(workspace(plan, array_view<std::byte>(nullptr, 512)),
                    "f: the bytes of the workspace have no memory but 512 elements");
  CHECK_THROWS_AS(workspace(plan, array_view<std::byte>(nullptr, 512)), value_error);
  CHECK_NOTHROW(workspace(workspace_plan("g"), array_view<std::byte>(nullptr, 512)));
}
