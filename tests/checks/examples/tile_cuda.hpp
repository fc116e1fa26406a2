// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of tile/cuda call by these names: tile_cuda.cmake.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/reduce/maximum.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/largest_keys.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/cuda_warpgroup.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace pieces {

using Executor = tessera::cuda;

/// A program that holds a map, and does nothing with it.
struct program {
  static constexpr int lanes = 128;
  struct scratch_type {};
  tessera::tensor_map map;

  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_type&) const {}
};

/// Scratch of programs.
struct word_scratch {
  alignas(16) tessera::bfloat16 words[1024];
};
struct key_scratch {
  std::uint32_t keys[4096];
  tessera::largest_keys_scratch<1024> found;
};
struct ring_scratch {
  alignas(1024) unsigned char boxes[4][8192];
};

struct fetched_scratch {
  tessera::staged_tile<tessera::bfloat16, 64, 64> tiles[4];
};

/// A tile of a matrix on its way to registers.
using fetched_tile = tessera::dense_chunks<tessera::bfloat16>::fetched<tessera::cuda_warpgroup,
                                                                       tessera::staged_tile<tessera::bfloat16, 64, 64>>;

}  // namespace pieces
