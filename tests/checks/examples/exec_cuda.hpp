// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of executors for CUDA call by these names: exec_cuda.cmake.
#pragma once

#include <cstdint>
#include <iostream>
#include <type_traits>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/concepts/group.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/explain.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_cooperative.cuh>
#include <tessera/program/gemm/store_sums.cuh>
#include <tessera/select/landmark.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tuning/gemm/linear.hpp>

#include "checks/examples/doubled.hpp"

namespace pieces {

using epilogue = tessera::store_sums_by_boxes<tessera::bfloat16, tessera::plain_sum>;

/// A call, and the list of the library's programs for it.
using scores = tessera::score_chunks<tessera::bfloat16, tessera::landmark_selector<8>>;
using models_for_scores = tessera::models_for<tessera::cuda, scores>::type;

/// The example specialises this: the library's own template can be specialised only in its namespace.
namespace in_exec_run_hpp_2 {

template <tessera::Executor Exec, class Call>
struct models_for;

}  // namespace in_exec_run_hpp_2
}  // namespace pieces
