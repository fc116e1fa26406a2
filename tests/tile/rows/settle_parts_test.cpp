// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>

#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/rows/settle_parts.hpp>

#include "support/catch.hpp"
#include "tile/rows/part_rows.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// What is wrong with parts that an executor on the host merges.
template <int Rows, int Columns, class Exec>
std::string wrong_parts_of(Exec const& exec, int count) {
  auto const parts = part_rows<Rows, Columns>();
  part_rows_outcome made(Rows, Columns);
  exec.run(part_rows_program<Rows, Columns>{{parts.data(), {Rows, Columns}},
                                            count,
                                            {made.settled},
                                            {made.merged},
                                            {made.factors.data(), {Rows, Columns}},
                                            {made.given.data(), {Rows, Columns}}},
           1);
  return wrong_parts<Rows, Columns>(parts, count, made);
}

}  // namespace

TEST_CASE("parts that lanes hold make rows, and know their factors", "[host]") {
  for (int const count : {0, 1, 7, 31, 32}) {
    CHECK(wrong_parts_of<5, 32>(cpu{.threads = 1}, count).empty());
  }
  for (int const count : {0, 33, 63, 64}) {
    CHECK(wrong_parts_of<6, 64>(cpu{.threads = 1}, count).empty());
  }
}

TEST_CASE("merging parts by lanes keeps the rules for programs", "[host]") {
  CHECK(wrong_parts_of<5, 32>(testing::adversary{.seed = 3}, 20).empty());
}
