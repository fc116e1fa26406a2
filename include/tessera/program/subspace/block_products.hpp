// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Products a^T b of matrices in fp32 whose rows are the depth, in blocks of 32 x 32 sums, and the two programs of a
/// search for directions that compute such products (program/subspace/iterate_in_blocks.hpp):
///
///     gram_images       Z = (G + m) Y / trace of G: fp32 over 16 rows at a time, those sums in double
///     product_splits    Z^T Z in double, on and above its diagonal, a few splits of the rows apart
///
/// 256 lanes compute a block. 64 rows of a and of b are staged at a time, a quarter of them for each 64 lanes, which
/// have 4 x 4 sums each; the next rows are loaded at the same time. The sums of the four quarters are added in order.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/triangle.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The precision in which sums of a block are formed.
enum class product_sums { in_double, in_float };

struct block_products {
  static constexpr int lanes = 256;
  static constexpr int block = 32;                    ///< rows and columns of sums
  static constexpr int slices = 4;                    ///< parts of the depth that are summed separately
  static constexpr int depth = 64;                    ///< rows that are staged at a time
  static constexpr int slice_depth = depth / slices;  ///< rows of these in a slice

  /// Neighbours in a row, which are loaded at once.
  struct alignas(16) quad {
    float values[4];  ///< one of each column
  };
  struct scratch_type {
    quad a[depth][block / 4];           ///< rows of a
    quad b[depth][block / 4];           ///< rows of b
    double sums[slices][block][block];  ///< sums of each slice
  };

  /// The block's first column in a and in b, and the rows to sum over.
  struct range {
    std::int64_t a_column;  ///< the first column in a
    std::int64_t b_column;  ///< the first column in b
    std::int64_t first;     ///< the first row
    std::int64_t end;       ///< the end of the rows
  };

  /// Calls write(i, j, sum) for all 32 x 32 sums; elements outside of the matrices count as zeros.
  template <product_sums Sums, Group G, class Write>
  TESSERA_FN static void run(G const& group, matrix_view<float const> a, matrix_view<float const> b, range const& at,
                             scratch_type& scratch, Write const& write) {
    per_lane<staged, G> next;
    per_lane<totals, G> sums;
    for (int lane : group) {
      sums[lane] = totals{};
      next[lane] = fetch(lane, a, b, at, at.first);
    }
    for (std::int64_t row = at.first; row < at.end; row += depth) {
      group.sync();  // all lanes have read the rows before
      for (int lane : group) {
        put(lane, next[lane], scratch);
      }
      group.sync();
      for (int lane : group) {
        next[lane] = fetch(lane, a, b, at, row + depth);
        multiply<Sums>(lane, scratch, sums[lane]);
      }
    }
    finish(group, sums, scratch, write);
  }

 private:
  static constexpr int fetched = depth * block / lanes;  ///< elements that a lane loads
  struct staged {
    float a[fetched];
    float b[fetched];
  };
  struct totals {
    double values[16];
  };

  TESSERA_FN static staged fetch(int lane, matrix_view<float const> a, matrix_view<float const> b, range const& at,
                                 std::int64_t first) {
    staged found;
    std::int64_t const a_column = at.a_column + lane % block;
    std::int64_t const b_column = at.b_column + lane % block;
    std::int64_t const row = first + lane / block;
    auto const rows_left = static_cast<int>(clamp(at.end - row, std::int64_t{0}, std::int64_t{depth}));
    int const a_rows = a_column < a.extent(1) ? rows_left : 0;
    int const b_rows = b_column < b.extent(1) ? rows_left : 0;
    constexpr int step = lanes / block;
    std::int64_t from_a = row * a.stride(0) + a_column * a.stride(1);
    std::int64_t from_b = row * b.stride(0) + b_column * b.stride(1);
    for (int i = 0; i < fetched; ++i) {
      found.a[i] = step * i < a_rows ? a.data[from_a] : 0.0F;
      found.b[i] = step * i < b_rows ? b.data[from_b] : 0.0F;
      from_a += step * a.stride(0);
      from_b += step * b.stride(0);
    }
    return found;
  }

  TESSERA_FN static void put(int lane, staged const& from, scratch_type& scratch) {
    for (int i = 0; i < fetched; ++i) {
      int const index = lane + lanes * i;
      scratch.a[index / block][index % block / 4].values[index % 4] = from.a[i];
      scratch.b[index / block][index % block / 4].values[index % 4] = from.b[i];
    }
  }

  template <product_sums Sums>
  TESSERA_FN static void multiply(int lane, scratch_type const& scratch, totals& sums) {
    int const first = lane / 64 * slice_depth;
    int const row = lane % 64 / 8;  // counted in fours, as is the column
    int const column = lane % 8;
    if constexpr (Sums == product_sums::in_double) {
      for (int k = first; k < first + slice_depth; ++k) {
        add_products(scratch.a[k][row], scratch.b[k][column], sums.values);
      }
    } else {
      float part[16] = {};
      for (int k = first; k < first + slice_depth; ++k) {
        add_products(scratch.a[k][row], scratch.b[k][column], part);
      }
      for (int i = 0; i < 16; ++i) {
        sums.values[i] += static_cast<double>(part[i]);
      }
    }
  }

  template <class Sum>
  TESSERA_FN static void add_products(quad a, quad b, Sum (&sums)[16]) {
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        sums[4 * i + j] += static_cast<Sum>(a.values[i]) * static_cast<Sum>(b.values[j]);
      }
    }
  }

  template <Group G, class Write>
  TESSERA_FN static void finish(G const& group, per_lane<totals, G> const& sums, scratch_type& scratch,
                                Write const& write) {
    for (int lane : group) {
      for (int i = 0; i < 16; ++i) {
        scratch.sums[lane / 64][lane % 64 / 8 * 4 + i / 4][lane % 8 * 4 + i % 4] = sums[lane].values[i];
      }
    }
    group.sync();
    for (int lane : group) {
      for (int index = lane; index < block * block; index += lanes) {
        int const i = index / block;
        int const j = index % block;
        double total = scratch.sums[0][i][j];
        for (int slice = 1; slice < slices; ++slice) {
          total += scratch.sums[slice][i][j];
        }
        write(i, j, total);
      }
    }
  }
};

/// Computes target = (gram + shift) columns / trace, so that no power of it overflows; gram is symmetric to the bit. A
/// group for each 32 x 32 elements.
struct gram_images {
  static constexpr int lanes = block_products::lanes;
  static constexpr int blocks_per_multiprocessor = 2;
  using scratch_type = block_products::scratch_type;

  matrix_view<float const> gram;                 ///< width x width
  array_view<subspace_measures const> measures;  ///< null: target = gram columns
  matrix_view<float const> columns;              ///< width x columns
  matrix_view<float> target;                     ///< width x columns

  TESSERA_FN constexpr std::int64_t groups() const {
    return divide_up(target.extent(0), std::int64_t{block_products::block}) * blocks_across();
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    block_products::range const at{which / blocks_across() * block_products::block,
                                   which % blocks_across() * block_products::block, 0, gram.extent(0)};
    double const shift = measures.data != nullptr ? static_cast<double>(measures[0].shift) : 0.0;
    double const trace = measures.data != nullptr ? measures[0].trace : 0.0;
    writer const write{*this, at, shift, trace > 0.0 ? 1.0 / trace : 1.0};
    block_products::run<product_sums::in_float>(group, gram, columns, at, scratch, write);
  }

 private:
  struct writer {
    gram_images const& program;
    block_products::range const& at;
    double shift;
    double by;
    TESSERA_FN void operator()(int i, int j, double sum) const {
      std::int64_t const row = at.a_column + i;
      std::int64_t const column = at.b_column + j;
      if (row < program.target.extent(0) && column < program.target.extent(1)) {
        auto const own = static_cast<double>(program.columns(row, column));
        program.target(row, column) = static_cast<float>((sum + shift * own) * by);
      }
    }
  };

  TESSERA_FN constexpr std::int64_t blocks_across() const {
    return divide_up(target.extent(1), std::int64_t{block_products::block});
  }
};

/// Computes blocks of columns^T columns on and above the diagonal, each over a part (split) of the rows: the sum of all
/// splits is the product. Beyond the columns there are zeros.
struct product_splits {
  static constexpr int lanes = block_products::lanes;
  static constexpr std::int64_t splits = 4;  ///< parts of the rows
  using scratch_type = block_products::scratch_type;

  matrix_view<float const> columns;  ///< width x columns
  view<double, 3> target;            ///< splits x columns x columns, rounded up to whole blocks

  TESSERA_FN constexpr std::int64_t groups() const { return splits * triangle_size(blocks()); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const split = which / triangle_size(blocks());
    triangle_coordinate const coordinate = coordinate_in_triangle(which % triangle_size(blocks()), blocks());
    std::int64_t const rows = columns.extent(0);
    std::int64_t const span = align_up(divide_up(rows, splits), std::int64_t{block_products::depth});
    block_products::range const at{std::int64_t{coordinate.row} * block_products::block,
                                   std::int64_t{coordinate.column} * block_products::block, min(split * span, rows),
                                   min((split + 1) * span, rows)};
    block_products::run<product_sums::in_double>(group, columns, columns, at, scratch, writer{target[split], at});
  }

 private:
  struct writer {
    view<double, 2> target;
    block_products::range const& at;
    TESSERA_FN void operator()(int i, int j, double sum) const { target(at.a_column + i, at.b_column + j) = sum; }
  };

  TESSERA_FN constexpr std::int64_t blocks() const { return target.extent(1) / block_products::block; }
};

}  // namespace v0
}  // namespace tessera
