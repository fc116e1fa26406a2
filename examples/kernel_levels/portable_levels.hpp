// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The first three levels of a matrix product, for every executor. README.md says what each level adds.
#pragma once

#include <cstdint>

#include <tessera/core/shape.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/dense.hpp>

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
    auto const multiply = [&](pipeline_step step, per_lane<float, Group>& sums) {
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
    auto const prepare = [&](int step) {
      group.sync();  // the tiles of the step before have been read
      dense<bfloat16>{of.a}.load(group, scratch.a[0], first.row, std::int64_t{step} * depth);
      dense<bfloat16>{of.b}.load(group, scratch.b[0], first.column, std::int64_t{step} * depth);  // ends with a sync
      return 0;
    };
    compute_staged<tile>(group, first, prepared_steps(steps(depth), prepare), scratch);
  }
};

/// A tile in registers, 16 bytes of a row for each lane, several times. It is loaded from memory while another tile is
/// multiplied. Rows of the matrix begin at multiples of 16 bytes.
template <class Tile, class Group>
struct tile_on_its_way {
  static constexpr int chunk = tile_chunk<bfloat16>::size;
  static constexpr int in_row = Tile::columns / chunk;
  static constexpr int of_lane = Tile::rows * in_row / Group::size;
  static_assert(of_lane * Group::size == Tile::rows * in_row, "each lane has as many chunks");
  struct chunks {
    tile_chunk<bfloat16> values[of_lane];
  };
  per_lane<chunks, Group> held;

  TESSERA_FN void fetch(Group const& group, matrix_view<bfloat16 const> from, std::int64_t row, std::int64_t column) {
    for (int lane : group) {
      for (int i = 0; i < of_lane; ++i) {
        std::int64_t const at_row = row + (lane + i * Group::size) / in_row;
        std::int64_t const at_column = column + (lane + i * Group::size) % in_row * chunk;
        bool const is_inside = at_row < from.extent(0) && at_column < from.extent(1);
        held[lane].values[i] = is_inside ? *reinterpret_cast<tile_chunk<bfloat16> const*>(&from(at_row, at_column))
                                         : tile_chunk<bfloat16>{};
      }
    }
  }
  TESSERA_FN void store(Group const& group, Tile& tile) const {
    for (int lane : group) {
      for (int i = 0; i < of_lane; ++i) {
        int const which = lane + i * Group::size;
        tile.chunk(which / in_row, which % in_row * chunk) = held[lane].values[i];
      }
    }
  }
};

/// Level 3: larger tiles, two of each in scratch, and the next ones being loaded into registers.
struct fetched_level : product_body<128, 128> {
  static constexpr char const* name = "3 tiles on their way";
  static constexpr int lanes = 256;
  static constexpr int depth = 32;
  using scratch_type = operand_stages<tile_rows, tile_columns, depth, 2>;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<tile_rows, tile_columns, 16>, Group>;
    corner const first = at(which);
    tile_on_its_way<staged_tile<bfloat16, tile_rows, depth>, Group> a;
    tile_on_its_way<staged_tile<bfloat16, tile_columns, depth>, Group> b;
    a.fetch(group, of.a, first.row, 0);
    b.fetch(group, of.b, first.column, 0);
    auto const prepare = [&](int step) {
      a.store(group, scratch.a[step % 2]);
      b.store(group, scratch.b[step % 2]);
      group.sync();  // one sync for each step: lanes that are late still read the other stage
      a.fetch(group, of.a, first.row, (std::int64_t{step} + 1) * depth);
      b.fetch(group, of.b, first.column, (std::int64_t{step} + 1) * depth);
      return step % 2;
    };
    compute_staged<tile>(group, first, prepared_steps(steps(depth), prepare), scratch);
  }
};

/// Whether rows begin at multiples of 16 bytes and end with whole ones, as levels 3, 4 and 5 need.
[[nodiscard]] inline bool has_aligned_rows(matrix_view<bfloat16 const> matrix) {
  constexpr std::int64_t chunk = tile_chunk<bfloat16>::size;
  return matrix.stride(1) == 1 && matrix.stride(0) % chunk == 0 && matrix.extent(1) % chunk == 0 &&
         reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0;
}

}  // namespace tessera_examples
