// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Searches for directions of keys on CUDA devices: by subspace_rounds for up to 192 directions, or up to 160 where a
/// thread block has less than 171 KiB of shared memory, and else by subspace_iteration.
#pragma once

#include <cstdint>

#include <tessera/algorithm/subspace/subspace_search.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/subspace/factor_blocks.hpp>

namespace tessera {
inline namespace v0 {

/// Enqueues a search: by subspace_rounds where they suit the rank and a thread block has enough shared memory, else by
/// subspace_iteration.
template <class Architectures, class T>
void find_subspace(basic_cuda<Architectures> const& exec, subspace_search<T> const& search) {
  constexpr int exchange = 1024;  // bytes through which a thread block's lanes exchange values
  std::int64_t const available = exec.state->shared_bytes() - exchange;
  auto const needed =
      static_cast<std::int64_t>(subspace_rounds::is_small(search.rank()) ? sizeof(factor_blocks<5>::scratch_type)
                                                                         : sizeof(factor_blocks<6>::scratch_type));
  if (subspace_rounds::suits(search.rank()) && needed <= available) {
    subspace_rounds::run(exec, search);
  } else {
    subspace_iteration::run(exec, search);
  }
}

}  // namespace v0
}  // namespace tessera
