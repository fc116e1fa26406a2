// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `subspace_by_solver`: the best directions there are, from all eigenvectors of the products of channels, in double by
/// cuSOLVER. It is there to compare other searches with, and for keys of which those leave too much (below 1e-6 of the
/// trace). Include it where cuSOLVER is linked: target_link_libraries(... tessera::cuda CUDA::cusolver).
///
///     subspace_by_solver solver(exec, 1024, 160);
///     auto const regions = solver.add_to(plan);                  // 8 MiB for the matrix, and what cuSOLVER asks for
///     factorization.accumulate(exec, keys, gram, room);
///     solver.find(exec, gram, regions, space, directions);
///
/// cuSOLVER may wait for the stream, and need not be capturable. Products that hold a NaN or an infinity give
/// meaningless directions and measures.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/check.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_eigenvectors.cuh>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/subspace/eigenvector_directions.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The memory of subspace_by_solver.
struct solver_regions {
  region<double> matrix;               ///< products, then eigenvectors
  region<double> values;               ///< eigenvalues
  region<std::byte> work;              ///< the workspace of cuSOLVER
  region<std::int32_t> info;           ///< the status of cuSOLVER: 0 if it has found the eigenvectors
  region<subspace_measures> measures;  ///< measures of the keys and directions
};

class subspace_by_solver {
 public:
  /// `width`: channels of all heads together. Throws value_error for an impossible rank.
  template <class Architectures>
  subspace_by_solver(basic_cuda<Architectures> const& exec, std::int64_t width, std::int64_t rank)
      : width_(width), rank_(rank), solver_(exec, width) {
    check<value_error>(rank >= 1 && rank <= width, "subspace_by_solver: the rank is ", rank,
                       " but keys of all heads have ", width, " channels");
  }

  /// Adds the memory of find() to a plan.
  [[nodiscard]] solver_regions add_to(workspace_plan& plan) const {
    return {plan.add<double>("products of channels in double", width_ * width_),
            plan.add<double>("their eigenvalues", width_),
            plan.add<std::byte>("workspace of cuSOLVER", solver_.device_bytes()),
            plan.add<std::int32_t>("how cuSOLVER did", 1), plan.add<subspace_measures>("measures of keys", 1)};
  }

  /// Enqueues the search: from `gram` to `directions`, width x rank and orthonormal, in the order of falling
  /// eigenvalues.
  template <class Architectures, class T>
  void find(basic_cuda<Architectures> const& exec, matrix_view<float const> gram, solver_regions const& at,
            workspace const& space, matrix_view<T> directions) {
    check<shape_error>(directions.extent(0) == width_ && directions.extent(1) == rank_,
                       "subspace_by_solver.find: directions are ", directions.extent(0), " x ", directions.extent(1),
                       " but ", width_, " x ", rank_, " were planned");
    matrix_view<double> const matrix(space[at.matrix].data, {width_, width_});
    widen_products const widen{gram, matrix};
    exec.run(widen, widen.groups());
    solver_.run(exec, matrix, space[at.values], space[at.work], space[at.info]);
    keep_eigenvectors<T> const keep{matrix, space[at.values], space[at.info], directions, space[at.measures]};
    exec.run(keep, keep.groups());
  }

 private:
  std::int64_t width_;
  std::int64_t rank_;
  cuda_eigenvectors solver_;
};

}  // namespace v0
}  // namespace tessera
