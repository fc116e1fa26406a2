// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Searches for directions of keys on CUDA devices: by subspace_rounds for up to 192 directions, or up to 160 where a
/// thread block has less than 171 KiB of shared memory, and else by subspace_iteration.
#pragma once

#include <cstdint>

#include <tessera/algorithm/subspace/subspace_search.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/subspace/factor_blocks.hpp>

namespace tessera {
inline namespace v0 {

/// subspace_rounds: where they suit the rank and a thread block has enough shared memory.
struct subspace_rounds_model {
  static constexpr char const* name = "iterate_in_blocks";

  template <Executor Exec, class Search>
  static constexpr refusal refuses_types() {
    return {};
  }
  template <class Architectures, class T>
  static refusal refuses(basic_cuda<Architectures> const& exec, subspace_search<T> const& search) {
    constexpr int exchange = 1024;  // bytes through which a thread block's lanes exchange values
    std::int64_t const available = exec.state->shared_bytes() - exchange;
    auto const needed =
        static_cast<std::int64_t>(subspace_rounds::is_small(search.rank()) ? sizeof(factor_blocks<5>::scratch_type)
                                                                           : sizeof(factor_blocks<6>::scratch_type));
    return first_of(unless(subspace_rounds::suits(search.rank()), "the rank", search.rank(), "at most 192"),
                    unless(needed <= available, "a thread block's shared memory in bytes", available,
                           "enough for a block of the triangular factor"));
  }
  template <class Architectures, class T>
  static void run(basic_cuda<Architectures> const& exec, subspace_search<T> const& search) {
    subspace_rounds::run(exec, search);
  }
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class T>
struct models_for<basic_cuda<Architectures>, subspace_search<T>> {
  /// The list of models.
  using type = model_list<subspace_rounds_model>;
};

}  // namespace v0
}  // namespace tessera
