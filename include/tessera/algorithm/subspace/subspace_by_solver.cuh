// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `subspace_by_solver`: the best directions, from all eigenvectors of the products of channels, in double by cuSOLVER.
/// Use it to compare other searches with, and for keys for which these are not accurate enough (below 1e-6 of the
/// trace). Include it where cuSOLVER is linked: target_link_libraries(... tessera::cuda CUDA::cusolver).
///
///     subspace_by_solver solver(exec, 1024, 160);
///     workspace_plan const plan = solver.plan_find(exec);         // 8 MiB for the matrix, and what cuSOLVER asks for
///     factorization.accumulate(exec, keys, gram, room);
///     solver.find(exec, gram, directions, workspace(plan, memory));
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

class subspace_by_solver {
 public:
  /// `width`: channels of all heads together. Throws value_error for an impossible rank.
  template <class Architectures>
  subspace_by_solver(basic_cuda<Architectures> const& exec, std::int64_t width, std::int64_t rank)
      : width_(width), rank_(rank), solver_(exec, width) {
    check<value_error>(rank >= 1 && rank <= width, "subspace_by_solver: the rank is ", rank,
                       " but keys of all heads have ", width, " channels");
  }

  /// The workspace of find(), which measures() reads.
  template <class Architectures>
  [[nodiscard]] workspace_plan plan_find(basic_cuda<Architectures> const&) const {
    workspace_plan plan(where);
    static_cast<void>(add_to(plan));
    return plan;
  }

  /// Enqueues the search: from `gram` to `directions`, width x rank and orthonormal, in the order of falling
  /// eigenvalues. Throws shape_error for extents that do not fit together.
  template <class Architectures, class T>
  void find(basic_cuda<Architectures> const& exec, matrix_view<float const> gram, matrix_view<T> directions,
            workspace const& space) {
    check<shape_error>(gram.extent(0) == width_ && gram.extent(1) == width_, where, ": products of channels are ",
                       gram.extent(0), " x ", gram.extent(1), " but ", width_, " x ", width_, " were planned");
    check<shape_error>(directions.extent(0) == width_ && directions.extent(1) == rank_, where, ": directions are ",
                       directions.extent(0), " x ", directions.extent(1), " but ", width_, " x ", rank_,
                       " were planned");
    regions const at = regions_in(space);
    matrix_view<double> const matrix(space[at.matrix].data, {width_, width_});
    widen_products const widen{gram, matrix};
    exec.run(widen, widen.groups());
    solver_.run(exec, matrix, space[at.values], space[at.room], space[at.info]);
    keep_eigenvectors<T> const keep{matrix, space[at.values], space[at.info], directions, space[at.measures]};
    exec.run(keep, keep.groups());
  }

  /// The measures that find() writes next to its directions.
  [[nodiscard]] array_view<subspace_measures const> measures(workspace const& space) const {
    return space[regions_in(space).measures];
  }

 private:
  static constexpr char const* where = "subspace_by_solver.find";

  struct regions {
    region<double> matrix;               ///< products, then eigenvectors
    region<double> values;               ///< eigenvalues
    region<std::byte> room;              ///< the workspace of cuSOLVER
    region<std::int32_t> info;           ///< the status of cuSOLVER: 0 if it has found the eigenvectors
    region<subspace_measures> measures;  ///< measures of the keys and directions
  };

  regions add_to(workspace_plan& plan) const {
    return {plan.add<double>("products of channels in double", width_ * width_),
            plan.add<double>("their eigenvalues", width_),
            plan.add<std::byte>("workspace of cuSOLVER", solver_.device_bytes()),
            plan.add<std::int32_t>("how cuSOLVER did", 1), plan.add<subspace_measures>("measures of keys", 1)};
  }
  regions regions_in(workspace const& space) const {
    workspace_plan plan(where, workspace_plan::record::sizes);
    regions const found = add_to(plan);
    space.check_room(where, plan.bytes(), rank_, " directions of ", width_, " channels");
    return found;
  }

  std::int64_t width_;
  std::int64_t rank_;
  cuda_eigenvectors solver_;
};

}  // namespace v0
}  // namespace tessera
