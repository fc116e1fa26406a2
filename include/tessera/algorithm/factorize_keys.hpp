// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The directions that hold most of the keys of all heads, without a singular value decomposition: the products of all
/// pairs of channels are added up as keys come, on tensor cores, and a subspace is found from them.
///
///     key_factorization const factorization(width, 160);          // {.iterations = 4, .oversampling = 32}
///     workspace_plan plan("my layer");
///     auto const regions = factorization.add_to(plan);
///     ...
///     exec.clear(gram);
///     factorization.accumulate(exec, keys, gram);                 // heads x tokens x channels, in pieces
///     factorization.find(exec, gram, regions, space, directions);               // width x rank
///
/// Sums of 2048 tokens are added up in fp32 and then to the others, so that pieces of multiples of 2048 tokens give the
/// same bits as all at once. Of what no `rank` directions can hold the found ones leave at most 1.01 times as much, for
/// spectra as flat as those of keys (tests/algorithm/factorize_keys_test.cpp), against 1e-8 more for an
/// eigenvalue decomposition of the same products. low_rank_projector (project/low_rank.hpp) is the reference in double.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/find_subspace.hpp>
#include <tessera/program/gemm_tiles.hpp>
#include <tessera/program/linear_map.hpp>
#include <tessera/program/run_program.hpp>
#include <tessera/program/store_sums.hpp>
#include <tessera/tile/source/joined_heads.hpp>

namespace tessera {
inline namespace v0 {

/// How directions of keys are looked for.
struct subspace_options {
  int iterations = 4;     ///< of the subspace iteration, at least 1
  int oversampling = 32;  ///< directions more than are kept at last
};

/// Memory of a search.
struct subspace_regions {
  region<float> columns;               ///< directions that are tried
  region<float> images;                ///< of those, by the products of keys
  region<double> products;             ///< inner products of directions
  region<double> vectors;              ///< eigenvectors of those
  region<std::int32_t> order;          ///< of directions, by falling weight
  region<subspace_measures> measures;  ///< of the keys, for the accuracy of the search
};

/// Finds the `rank` directions that hold most of the keys of all heads: subspace iteration on their products.
class key_factorization {
 public:
  static constexpr std::int64_t block_tokens = 2048;  ///< multiplied at a time

  /// `width`: channels of all heads together. Throws value_error for ranks and options that cannot be.
  key_factorization(std::int64_t width, std::int64_t rank, subspace_options options = {})
      : width_(width),
        rank_(rank),
        columns_(min(rank + max(options.oversampling, 0), width)),
        iterations_(options.iterations) {
    check<value_error>(rank >= 1 && rank <= width, "key_factorization: the rank is ", rank,
                       " but keys of all heads have ", width, " channels");
    check<value_error>(columns_ <= key_directions, "key_factorization: ", columns_,
                       " directions are looked for but at most ", key_directions, " can be");
    check<value_error>(options.iterations >= 1, "key_factorization: there are ", options.iterations,
                       " iterations but at least 1 is needed");
  }

  /// Adds what find() needs to a plan.
  [[nodiscard]] subspace_regions add_to(workspace_plan& plan) const {
    return {plan.add<float>("directions that are tried", width_ * columns_),
            plan.add<float>("their images", width_ * columns_),
            plan.add<double>("products of directions", columns_ * columns_),
            plan.add<double>("their eigenvectors", columns_ * columns_),
            plan.add<std::int32_t>("order of directions", rank_),
            plan.add<subspace_measures>("measures of keys", 1)};
  }

  /// gram += the products of all pairs of channels, over the tokens given.
  template <class Executor, class T>
  void accumulate(Executor const& exec, view<T const, 3> keys, matrix_view<float> gram) const {
    for (std::int64_t first = 0; first < keys.extent(1); first += block_tokens) {
      const std::int64_t count = min(block_tokens, keys.extent(1) - first);
      const turned_heads<T> source{{keys.slice(1, first, count)}};
      using epilogue = store_sums<float, add_matrix<float>>;
      const gemm_tiles<T, turned_heads<T>, turned_heads<T>, epilogue> program{source, source, {gram, {gram}}};
      run_program(exec, program, program.tiles());
    }
  }

  /// The measures of a search, where its directions are found.
  [[nodiscard]] static array_view<subspace_measures const> measures(subspace_regions const& at,
                                                                    workspace const& space) {
    return space[at.measures];
  }

  /// Enqueues the search: `gram`, the products of all pairs of channels, to `directions`, width x rank and orthonormal.
  template <class Executor, class T>
  void find(Executor const& exec, matrix_view<float const> gram, subspace_regions const& at, workspace const& space,
            matrix_view<T> directions) const {
    const matrix_view<float> columns(space[at.columns].data, {width_, columns_});
    const matrix_view<float> images(space[at.images].data, {width_, columns_});
    const matrix_view<double> products(space[at.products].data, {columns_, columns_});
    const matrix_view<double> vectors(space[at.vectors].data, {columns_, columns_});
    const array_view<subspace_measures> measures = space[at.measures];
    run_program(exec, start_subspace{gram, columns, measures});
    make_orthonormal(exec, columns, products, columns);
    for (int i = 0; i < iterations_; ++i) {
      run_program(exec, multiply_gram{gram, measures, columns, images});
      make_orthonormal(exec, images, products, columns);
    }
    make_orthonormal(exec, columns, products, columns);  // of what a large condition has left
    run_program(exec, multiply_gram{gram, {}, columns, images});
    run_program(exec, inner_products{columns, images, products});
    run_program(exec, diagonalize{products, vectors}, 1);
    run_program(exec, order_values{products, space[at.order], measures}, 1);
    run_program(exec, write_directions<T>{columns, vectors, space[at.order], directions});
  }

 private:
  template <class Executor>
  static void make_orthonormal(Executor const& exec, matrix_view<float const> from, matrix_view<double> products,
                               matrix_view<float> to) {
    run_program(exec, inner_products{from, from, products});
    run_program(exec, factor_products{products}, 1);
    run_program(exec, solve_rows{products, from, to});
  }

  std::int64_t width_;
  std::int64_t rank_;
  std::int64_t columns_;
  int iterations_;
};

}  // namespace v0
}  // namespace tessera
