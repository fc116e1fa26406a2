// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The fourth level, for every executor: a ring of stages in scratch, which are filled while others are multiplied. On
/// a GPU by asynchronous copies from global to shared memory (sm_80 on), which pass no register.
#pragma once

#include <cstdint>

#include "portable_levels.hpp"

namespace tessera_examples {

/// Level 4: tiles are on their way to several stages at a time. Rows of matrices begin at multiples of 16 bytes.
struct ring_level : product_body<128, 128> {
  static constexpr char const* name = "4 ring of stages";
  static constexpr int lanes = 256;
  static constexpr int depth = 32;
  static constexpr int stages = 4;
  static constexpr int blocks_per_multiprocessor = 2;
  using scratch_type = operand_stages<tile_rows, tile_columns, depth, stages>;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
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
