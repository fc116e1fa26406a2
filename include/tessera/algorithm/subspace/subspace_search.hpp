// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How algorithm/subspace/factorize_keys.hpp searches for directions, given the products G of all pairs of channels.
/// There are two searches:
///
///     subspace_iteration    more columns than directions, then the eigenvectors of Y^T G Y: the reference
///     subspace_rounds       as many columns as directions, four times the rounds, no eigenvectors: what GPUs run
///
/// Both iterate Y = orthonormal columns of (G + m) Y. The second orthonormalizes only every other product, and starts a
/// column again if, up to rounding, it lies in the span of the columns before it (factor_blocks). The table compares
/// the part of the keys that lies outside of the directions of either search with the part outside of the best
/// directions, for 1024 channels and 160 directions. The first column gives eigenvalue i. Ratios were computed in
/// double, with each product orthonormalized and m = 1e-6 of the trace:
///
///                                        iteration, 32 more columns      rounds
///     rounds                                 2        4        5         4        8       12       16
///     (i + 1)^-1/2                         1.0464   1.0101   1.0056    1.0172   1.0044   1.0020   1.0011
///     (i + 1)^-1                           1.0327   1.0047   1.0023    1.0140   1.0037   1.0018   1.0011
///     (i + 1)^-2                           1.0237   1.0021   1.0008    1.0167   1.0045   1.0021   1.0013
///     exp(-i / 8) + 1e-4                   1.0085   1.0034   1.0026    1.0039   1.0018   1.0012   1.0009
///     exp(-i / 32) + 1e-4                  1.0037   1.0000   1.0000    1.0221   1.0047   1.0017   1.0006
///     1 for 160, then 0.5                  1.0654   1.0127   1.0041    1.0245   1.0022   1.0001   1.0000
///     1 - i / 1024                         1.0442   1.0202   1.0147    1.0267   1.0105   1.0053   1.0031
///     1e4, then (i + 1)^-1                 1.2481   1.0829   1.0517    1.1126   1.0281   1.0114   1.0063
///     1 for 150, 0.9 for 150, then 0.01    1.0354   1.0302   1.0276    1.0409   1.0304   1.0217   1.0148
///     normal, 2048 rows                    1.0532   1.0163   1.0101    1.0264   1.0078   1.0036   1.0020
///
/// So sixteen rounds are as accurate as four iterations, up to 0.06 % where the iterations are exact to 1e-5. Rounds
/// need no eigenvectors of a matrix, for which one thread block would take milliseconds. The programs themselves, in
/// fp32, with 16 rounds and m = 1e-7 of the trace, reach the ratios of the last column, and 1.0033 for "1e4, then (i +
/// 1)^-1". If the mean has 1e6 times the energy of the next direction, they reach 1.38: this excess is 7e-7 of the
/// trace, and products in fp32 have no information below 1e-6 of the trace.
#pragma once

#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/subspace/block_products.hpp>
#include <tessera/program/subspace/factor_blocks.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/program/subspace/iterate_in_blocks.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The options of a search for directions of keys.
struct subspace_options {
  int iterations = 4;     ///< iterations of subspace_iteration; subspace_rounds has four rounds for each, or eight
  int oversampling = 32;  ///< directions that subspace_iteration tries beyond those that it keeps
};

/// The memory of a search.
struct subspace_regions {
  region<float> columns;               ///< the directions that are tried
  region<float> images;                ///< the products of the keys' Gram matrix with these directions
  region<double> products;             ///< inner products of the directions
  region<double> vectors;              ///< eigenvectors of the inner products
  region<double> splits;               ///< partial sums of inner products, over some channels each
  region<double> factor;               ///< the factor of the inner products
  region<double> held;                 ///< the part of the keys that the directions hold, by channel
  region<std::int32_t> order;          ///< the order of directions by falling weight
  region<subspace_measures> measures;  ///< measures of the keys, for the accuracy of the search
};

/// A call of a search: its arguments and its memory.
template <Scalar T>
struct subspace_search {
  static constexpr char const* function = "key_factorization.find";

  matrix_view<float const> gram;  ///< the products of all pairs of channels, symmetric to the bit
  matrix_view<T> directions;      ///< the results, width x rank
  std::int64_t columns;           ///< the directions that subspace_iteration tries
  int iterations;                 ///< see subspace_options
  subspace_regions at;            ///< memory of the search
  workspace space;                ///< the workspace that this memory is in

  /// The channels of all heads.
  [[nodiscard]] std::int64_t width() const { return directions.extent(0); }
  /// The number of directions.
  [[nodiscard]] std::int64_t rank() const { return directions.extent(1); }
};

/// The reference search: more columns than directions, and eigenvectors of their products.
struct subspace_iteration {
  /// Enqueues the search.
  template <Executor Exec, class T>
  static void run(Exec const& exec, subspace_search<T> const& search) {
    auto const& [gram, directions, tried, iterations, at, space] = search;
    matrix_view<float> const columns(space[at.columns].data, {search.width(), tried});
    matrix_view<float> const images(space[at.images].data, {search.width(), tried});
    matrix_view<double> const products(space[at.products].data, {tried, tried});
    matrix_view<double> const vectors(space[at.vectors].data, {tried, tried});
    array_view<subspace_measures> const measures = space[at.measures];
    tessera::run(exec, start_subspace{gram, columns, measures});
    make_orthonormal(exec, columns, products, columns);
    for (int i = 0; i < iterations; ++i) {
      tessera::run(exec, multiply_gram{gram, measures, columns, images});
      make_orthonormal(exec, images, products, columns);
    }
    make_orthonormal(exec, columns, products, columns);  // removes what a large condition number has left
    tessera::run(exec, multiply_gram{gram, {}, columns, images});
    tessera::run(exec, inner_products{columns, images, products});
    exec.run(diagonalize{products, vectors}, 1);
    exec.run(order_values{products, space[at.order], measures}, 1);
    tessera::run(exec, write_directions<T>{columns, vectors, space[at.order], directions});
  }

 private:
  template <Executor Exec>
  static void make_orthonormal(Exec const& exec, matrix_view<float const> from, matrix_view<double> products,
                               matrix_view<float> to) {
    tessera::run(exec, inner_products{from, from, products});
    exec.run(factor_products{products}, 1);
    tessera::run(exec, solve_rows{products, from, to});
  }
};

/// The search in rounds: as many columns as directions, without eigenvectors.
struct subspace_rounds {
  /// The number of rounds: eight for each iteration if most directions are kept, else four. The few directions that are
  /// left out then have similar eigenvalues, so that the search converges more slowly: with 160 of 192, (i + 1)^-1/2,
  /// 16 rounds leave 1.0143 and 32 leave 1.0042; with 128 of 256, 16 leave 1.0041.
  [[nodiscard]] static constexpr int rounds(std::int64_t width, std::int64_t rank, int iterations) {
    return (8 * rank > 5 * width ? 8 : 4) * iterations;
  }

  /// Whether rounds can search for so many directions.
  [[nodiscard]] static constexpr bool suits(std::int64_t rank) { return rank <= solve_blocks::most_columns; }
  /// Whether the products of so many directions are factored in the smaller of two scratches: 123 KiB, else 171 KiB.
  [[nodiscard]] static constexpr bool is_small(std::int64_t rank) { return rank <= factor_blocks<5>::size; }

  /// Enqueues the search, for a rank that suits().
  template <Executor Exec, class T>
  static void run(Exec const& exec, subspace_search<T> const& search) {
    memory const on{search};
    array_view<subspace_measures> const measures = search.space[search.at.measures];
    array_view<double> const held = search.space[search.at.held];
    tessera::run(exec, start_rounds{search.gram, on.columns, measures});
    make_orthonormal(exec, on, on.columns);
    int const count = rounds(search.width(), search.rank(), search.iterations);
    for (int i = 0; i < count / 2; ++i) {
      tessera::run(exec, gram_images{search.gram, measures, on.columns, on.images});
      tessera::run(exec, gram_images{search.gram, measures, on.images, on.columns});
      make_orthonormal(exec, on, on.columns);
    }
    make_orthonormal(exec, on, on.columns);  // removes what a large condition number has left
    tessera::run(exec, gram_images{search.gram, {}, on.columns, on.images});
    tessera::run(exec, keep_directions<T>{on.columns, on.images, search.directions, held});
    exec.run(finish_rounds{held, measures}, 1);
  }

 private:
  struct memory {
    std::int64_t whole;  ///< the number of columns, rounded up to whole blocks
    matrix_view<float> columns;
    matrix_view<float> images;
    view<double, 3> splits;
    matrix_view<double> factor;

    template <class T>
    explicit memory(subspace_search<T> const& search)
        : whole(align_up(search.rank(), std::int64_t{block_products::block})),
          columns(search.space[search.at.columns].data, {search.width(), search.rank()}),
          images(search.space[search.at.images].data, {search.width(), search.rank()}),
          splits(search.space[search.at.splits].data, {product_splits::splits, whole, whole}),
          factor(search.space[search.at.factor].data, {whole, whole}) {}
  };

  template <Executor Exec>
  static void make_orthonormal(Exec const& exec, memory const& on, matrix_view<float const> from) {
    tessera::run(exec, product_splits{from, on.splits});
    factor(exec, on);
    tessera::run(exec, solve_blocks{on.factor, from, on.columns});
  }

  /// Factors the inner products. Columns beyond the matrix count as orthonormal, so that fewer blocks need no separate
  /// program.
  template <Executor Exec>
  static void factor(Exec const& exec, memory const& on) {
    std::int64_t const columns = on.columns.extent(1);
    if (is_small(columns)) {
      exec.run(factor_blocks<5>{on.splits, columns, on.factor}, 1);
    } else {
      exec.run(factor_blocks<6>{on.splits, columns, on.factor}, 1);
    }
  }
};

/// Enqueues a search by subspace_iteration; run() (exec/run.hpp) may have a faster one.
template <Executor Exec, class T>
void run_portably(Exec const& exec, subspace_search<T> const& search) {
  subspace_iteration::run(exec, search);
}

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/subspace/subspace_search.cuh>
#endif
