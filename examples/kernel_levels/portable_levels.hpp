// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The first three levels of a matrix product, for every executor. README.md says what each level adds.
#pragma once

#include <cstdint>

#include <tessera/core/shape.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "product_body.hpp"

namespace tessera_examples {

/// A row of sums, one for each lane.
template <class Group>
struct lane_sums {
  using sum_tile = per_lane<float, Group>;
  TESSERA_FN static void clear(Group const& group, sum_tile& sums) {
    for (int lane : group) {
      sums[lane] = 0;
    }
  }
  template <class Visit>
  TESSERA_FN static void each(Group const& group, sum_tile const& sums, Visit const& visit) {
    for (int lane : group) {
      visit(0, lane, sums[lane]);
    }
  }
};

/// Level 1, a plain loop: each lane computes one sum, and a step is one element of the depth.
struct plain_level : product_body<1, 128> {
  static constexpr char const* name = "1 plain loop";
  static constexpr int lanes = 128;
  struct scratch_type {};

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    corner const first = at(which);
    auto const prepare = [](int) { return 0; };  // operands are read from memory where they are multiplied
    auto const multiply = [&, this](pipeline_step step, per_lane<float, Group>& sums) {
      for (int lane : group) {
        std::int64_t const column = min(first.column + lane, of.c.extent(1) - 1);
        sums[lane] += load(of.a(first.row, step.index)) * load(of.b(column, step.index));
      }
    };
    compute<lane_sums<Group>>(group, first, prepared_steps(steps(1), prepare), multiply);
  }
};

/// Level 2: tiles in scratch, multiplied by tensor cores where the executor has them.
struct tiled_level : product_body<64, 64> {
  static constexpr char const* name = "2 tiles";
  static constexpr int lanes = 128;
  static constexpr int depth = 32;
  using scratch_type = operand_stages<tile_rows, tile_columns, depth, 1>;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<tile_rows, tile_columns, 16>, Group>;
    corner const first = at(which);
    auto const prepare = [&, this](int step) {
      group.sync();  // the tiles of the step before have been read
      dense<bfloat16>{of.a}.load(group, scratch.a[0], first.row, std::int64_t{step} * depth);
      dense<bfloat16>{of.b}.load(group, scratch.b[0], first.column, std::int64_t{step} * depth);  // ends with a sync
      return 0;
    };
    compute_staged<tile>(group, first, prepared_steps(steps(depth), prepare), scratch);
  }
};

/// Level 3: larger tiles, two of each in scratch, and the next ones on their way to registers. Rows of matrices begin
/// at multiples of 16 bytes.
struct fetched_level : product_body<128, 128> {
  static constexpr char const* name = "3 tiles on their way";
  static constexpr int lanes = 256;
  static constexpr int depth = 32;
  using scratch_type = operand_stages<tile_rows, tile_columns, depth, 2>;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<tile_rows, tile_columns, 16>, Group>;
    corner const first = at(which);
    dense_chunks<bfloat16> const a{of.a};
    dense_chunks<bfloat16> const b{of.b};
    typename dense_chunks<bfloat16>::template fetched<Group, staged_tile<bfloat16, tile_rows, depth>> next_a;
    typename dense_chunks<bfloat16>::template fetched<Group, staged_tile<bfloat16, tile_columns, depth>> next_b;
    a.fetch(group, next_a, first.row, 0);
    b.fetch(group, next_b, first.column, 0);
    auto const prepare = [&](int step) {
      a.store(group, next_a, scratch.a[step % 2]);
      b.store(group, next_b, scratch.b[step % 2]);
      group.sync();  // one sync for each step: lanes that are late still read the other stage
      a.fetch(group, next_a, first.row, (std::int64_t{step} + 1) * depth);
      b.fetch(group, next_b, first.column, (std::int64_t{step} + 1) * depth);
      return step % 2;
    };
    compute_staged<tile>(group, first, prepared_steps(steps(depth), prepare), scratch);
  }
};

/// Whether rows begin at multiples of 16 bytes and end with whole ones, as levels 3, 4 and 5 need.
[[nodiscard]] inline bool has_aligned_rows(matrix_view<bfloat16 const> matrix) {
  return dense_chunks<bfloat16>::suits(matrix);
}

}  // namespace tessera_examples
