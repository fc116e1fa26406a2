// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/rows/lane_rows.cuh>
#include <tessera/tile/rows/settle_parts.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "tile/rows/part_rows.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// What is wrong with parts that a warp merges.
template <int Rows, int Columns>
std::string wrong_parts_of(int count) {
  cuda const exec;
  auto const parts = part_rows<Rows, Columns>();
  part_rows_outcome made(Rows, Columns);
  auto const from = to_device(exec, parts);
  auto settled = to_device(exec, made.settled);
  auto merged = to_device(exec, made.merged);
  auto factors = to_device(exec, made.factors);
  auto given = to_device(exec, made.given);
  exec.run(part_rows_program<Rows, Columns>{{from.data(), {Rows, Columns}},
                                            count,
                                            settled.view(),
                                            merged.view(),
                                            {factors.data(), {Rows, Columns}},
                                            {given.data(), {Rows, Columns}}},
           1);
  made.settled = to_host(exec, settled);
  made.merged = to_host(exec, merged);
  made.factors = to_host(exec, factors);
  made.given = to_host(exec, given);
  return wrong_parts<Rows, Columns>(parts, count, made);
}

}  // namespace

TEST_CASE("parts that lanes of a warp hold make the rows that plain arrays make", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (int const count : {0, 1, 7, 31, 32}) {
    CHECK(wrong_parts_of<5, 32>(count) == "");
  }
  for (int const count : {0, 33, 63, 64}) {
    CHECK(wrong_parts_of<6, 64>(count) == "");
  }
}
