// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The first three levels of a matrix product, for every executor. README.md says what each level adds.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/tile_order.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_examples {

using namespace tessera;

/// c = a b^T: a rows x depth, b columns x depth, c rows x columns.
struct product {
  matrix_view<bfloat16 const> a;
  matrix_view<bfloat16 const> b;
  matrix_view<bfloat16> c;
};

/// Level 1, a plain loop: each lane computes one sum.
struct plain_level {
  static constexpr char const* name = "1 plain loop";
  static constexpr int lanes = 128;
  struct scratch_type {};
  product of;

  /// How many groups of lanes the level takes.
  [[nodiscard]] std::int64_t groups() const { return divide_up(of.c.size(), std::int64_t{lanes}); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const row = (which * lanes + lane) / of.c.extent(1);
      std::int64_t const column = (which * lanes + lane) % of.c.extent(1);
      if (row < of.c.extent(0)) {
        float sum = 0;
        for (std::int64_t k = 0; k < of.a.extent(1); ++k) {
          sum += load(of.a(row, k)) * load(of.b(column, k));
        }
        of.c(row, column) = store<bfloat16>(sum);
      }
    }
  }
};

/// The tiles of c; elements beyond its edges are left out.
template <int Rows, int Columns>
struct tiles_of_product {
  product of;

  [[nodiscard]] TESSERA_FN constexpr tile_order order() const {
    return {static_cast<std::int32_t>(divide_up(of.c.extent(0), std::int64_t{Rows})),
            static_cast<std::int32_t>(divide_up(of.c.extent(1), std::int64_t{Columns})), 8};
  }
  /// The first row and column of tile number `which`.
  struct corner {
    std::int64_t row;
    std::int64_t column;
  };
  [[nodiscard]] TESSERA_FN constexpr corner at(std::int64_t which) const {
    tile_coordinate const coordinate = order().at(which);
    return {std::int64_t{coordinate.row} * Rows, std::int64_t{coordinate.column} * Columns};
  }
  /// Rounds the sums of a tile and writes them.
  template <class Tile, class Group, class Sums>
  TESSERA_FN void write(Group const& group, Sums& sums, corner first) const {
    matrix_view<bfloat16> const c = of.c;
    Tile::each(group, sums, [=](int row, int column, float sum) {
      if (first.row + row < c.extent(0) && first.column + column < c.extent(1)) {
        c(first.row + row, first.column + column) = store<bfloat16>(sum);
      }
    });
  }
};

/// Level 2: tiles in scratch, multiplied by tensor cores where the executor has them.
struct tiled_level : tiles_of_product<64, 64> {
  static constexpr char const* name = "2 tiles";
  static constexpr int lanes = 128;
  static constexpr int depth = 32;
  struct scratch_type {
    staged_tile<bfloat16, 64, depth> a;
    staged_tile<bfloat16, 64, depth> b;
  };

  [[nodiscard]] std::int64_t groups() const { return order().count(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<64, 64, 16>, Group>;
    corner const first = at(which);
    typename tile::sum_tile sums;
    tile::clear(group, sums);
    for (std::int64_t k = 0; k < of.a.extent(1); k += depth) {
      group.sync();  // the tiles of the step before have been read
      dense<bfloat16>{of.a}.load(group, scratch.a, first.row, k);
      dense<bfloat16>{of.b}.load(group, scratch.b, first.column, k);
      multiply_staged<tile>(group, scratch.a, scratch.b, sums);
    }
    write<tile>(group, sums, first);
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
struct pipelined_level : tiles_of_product<128, 128> {
  static constexpr char const* name = "3 tiles on their way";
  static constexpr int lanes = 256;
  static constexpr int depth = 32;
  using staged = staged_tile<bfloat16, 128, depth>;
  struct scratch_type {
    staged a[2];
    staged b[2];
  };

  [[nodiscard]] std::int64_t groups() const { return order().count(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<128, 128, 16>, Group>;
    corner const first = at(which);
    typename tile::sum_tile sums;
    tile::clear(group, sums);
    tile_on_its_way<staged, Group> a;
    tile_on_its_way<staged, Group> b;
    a.fetch(group, of.a, first.row, 0);
    b.fetch(group, of.b, first.column, 0);
    int buffer = 0;
    for (std::int64_t k = 0; k < of.a.extent(1); k += depth) {
      a.store(group, scratch.a[buffer]);
      b.store(group, scratch.b[buffer]);
      group.sync();  // one sync for each step: lanes that are late still read the other buffer
      a.fetch(group, of.a, first.row, k + depth);
      b.fetch(group, of.b, first.column, k + depth);
      multiply_staged<tile>(group, scratch.a[buffer], scratch.b[buffer], sums);
      buffer ^= 1;
    }
    write<tile>(group, sums, first);
  }
};

/// Whether rows begin at multiples of 16 bytes and end with whole ones, as levels 3, 4 and 5 need.
[[nodiscard]] inline bool has_aligned_rows(matrix_view<bfloat16 const> matrix) {
  constexpr std::int64_t chunk = tile_chunk<bfloat16>::size;
  return matrix.stride(1) == 1 && matrix.stride(0) % chunk == 0 && matrix.extent(1) % chunk == 0 &&
         reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0;
}

}  // namespace tessera_examples
