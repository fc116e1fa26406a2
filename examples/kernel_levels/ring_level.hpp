// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The fourth level, for every executor: a ring of stages in scratch, which are filled while others are multiplied. On
/// a GPU by asynchronous copies from global to shared memory (sm_80 on), which pass no register.
#pragma once

#include <cstdint>

#include <tessera/tile/pipelined.hpp>

#include "portable_levels.hpp"

namespace tessera_examples {

/// Level 4: tiles are on their way to several stages at a time. Rows of matrices begin at multiples of 16 bytes.
struct ring_level : tiles_of_product<128, 128> {
  static constexpr char const* name = "4 ring of stages";
  static constexpr int lanes = 256;
  static constexpr int depth = 32;
  static constexpr int stages = 4;
  static constexpr int blocks_per_multiprocessor = 2;
  using staged = staged_tile<bfloat16, 128, depth>;
  struct scratch_type {
    staged a[stages];
    staged b[stages];
  };

  [[nodiscard]] std::int64_t groups() const { return order().count(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<128, 128, 16>, Group>;
    corner const first = at(which);
    typename tile::sum_tile sums;
    tile::clear(group, sums);
    dense<bfloat16> const a{of.a};
    dense<bfloat16> const b{of.b};
    auto const begin = [&](int step, int stage) {
      a.begin_load(group, scratch.a[stage], first.row, std::int64_t{step} * depth);
      b.begin_load(group, scratch.b[stage], first.column, std::int64_t{step} * depth);
    };
    auto const steps = static_cast<int>(divide_up(of.a.extent(1), std::int64_t{depth}));
    for (pipeline_step const at : pipelined<stages>(group, steps, begin)) {
      multiply_staged<tile>(group, scratch.a[at.stage], scratch.b[at.stage], sums);
    }
    write<tile>(group, sums, first);
  }
};

}  // namespace tessera_examples
