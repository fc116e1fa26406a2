// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The fourth level, for every executor: a ring of stages in scratch, which are filled while others are multiplied. On
/// a GPU by asynchronous copies from global to shared memory (sm_80 on), which pass no register.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>

#include "portable_levels.hpp"

namespace tessera_examples {

/// Stages of 16 KiB for both operands. A CPU copies at once, and needs no more than `pipelined` asks for. Two thread
/// blocks have four stages each on a multiprocessor, and three where it has 100 KiB of shared memory.
TESSERA_FN constexpr int ring_stages_on(architecture tag) {
  bool const has_100_kib = tag == architecture::sm_86 || tag == architecture::sm_89 || tag == architecture::sm_120;
  return tag == architecture::host ? 2 : has_100_kib ? 3 : 4;
}

/// Level 4: tiles are on their way to several stages at a time, as many as the architecture has room for. Rows of
/// matrices begin at multiples of 16 bytes.
struct ring_level : product_body<128, 128> {
  static constexpr char const* name = "4 ring of stages";
  static constexpr int lanes = 256;
  static constexpr int depth = 32;
  static constexpr int blocks_per_multiprocessor = 2;
  template <class Group>
  using scratch_for = operand_stages<tile_rows, tile_columns, depth, ring_stages_on(architecture_of<Group>)>;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_for<Group>& scratch) const {
    constexpr int stages = ring_stages_on(architecture_of<Group>);
    using tile = gemm_tile<bfloat16, shape<tile_rows, tile_columns, 16>, Group>;
    corner const first = at(which);
    dense<bfloat16> const a{of.a};
    dense<bfloat16> const b{of.b};
    auto const begin = [&](int step, int stage) {
      a.begin_load(group, scratch.a[stage], first.row, std::int64_t{step} * depth);
      b.begin_load(group, scratch.b[stage], first.column, std::int64_t{step} * depth);
    };
    compute_staged<tile>(group, first, pipelined<stages>(group, steps(depth), begin), scratch);
  }
};

}  // namespace tessera_examples
