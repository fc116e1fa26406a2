// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The fourth level, for every executor: a ring of stages in scratch, which are filled while others are multiplied. On
/// a GPU by asynchronous copies from global to shared memory (sm_80 on), which pass no register.
#pragma once

#include <cstdint>

#include "portable_levels.hpp"
#if defined(__CUDACC__)
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/group.cuh>
#endif

namespace tessera_examples {

/// How lanes copy 16 bytes to scratch while they go on. On the CPU they are there at once.
template <class Group>
struct copies_in_flight {
  static void begin(tile_chunk<bfloat16>& to, tile_chunk<bfloat16> const* from, bool is_inside) {
    to = is_inside ? *from : tile_chunk<bfloat16>{};
  }
  static void commit() {}
  template <int Pending>
  static void await() {}
};
#if defined(__CUDACC__)
template <CudaLanes Group>
struct copies_in_flight<Group> {
  __device__ static void begin(tile_chunk<bfloat16>& to, tile_chunk<bfloat16> const* from, bool is_inside) {
    async_copy_16_or_zero(&to, from, is_inside);
  }
  __device__ static void commit() { async_copy_commit(); }
  template <int Pending>
  __device__ static void await() {
    async_copy_wait<Pending>();
  }
};
#endif

/// Level 4: tiles are on their way to several stages at a time. Rows of matrices begin at multiples of 16 bytes.
struct ring_level : tiles_of_product<128, 128> {
  static constexpr char const* name = "4 ring of stages";
  static constexpr int lanes = 256;
  static constexpr int depth = 32;
  static constexpr int stages = 4;
  static constexpr int blocks_per_multiprocessor = 2;
  using staged = staged_tile<bfloat16, 128, depth>;
  struct scratch_type {
    staged a[stages];
    staged b[stages];
  };

  [[nodiscard]] std::int64_t groups() const { return order().count(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<128, 128, 16>, Group>;
    corner const first = at(which);
    typename tile::sum_tile sums;
    tile::clear(group, sums);
    auto const steps = static_cast<int>(divide_up(of.a.extent(1), std::int64_t{depth}));
    for (int step = 0; step < stages - 1; ++step) {
      fill(group, scratch, step, first);
    }
    for (int step = 0; step < steps; ++step) {
      copies_in_flight<Group>::template await<stages - 2>();  // the oldest copies of this lane are done
      group.sync();  // so are other lanes' copies, and the stage before this one has been read
      fill(group, scratch, step + stages - 1, first);
      multiply_staged<tile>(group, scratch.a[step % stages], scratch.b[step % stages], sums);
    }
    write<tile>(group, sums, first);
  }

 private:
  /// Starts to fill the stage of a step. Beyond the depth it starts nothing, which counts as copies that are done.
  template <class Group>
  TESSERA_FN void fill(Group const& group, scratch_type& scratch, int step, corner first) const {
    if (step * depth < of.a.extent(1)) {
      begin(group, scratch.a[step % stages], of.a, first.row, step * depth);
      begin(group, scratch.b[step % stages], of.b, first.column, step * depth);
    }
    copies_in_flight<Group>::commit();
  }
  template <class Group>
  TESSERA_FN static void begin(Group const& group, staged& to, matrix_view<bfloat16 const> from, std::int64_t row,
                               std::int64_t column) {
    constexpr int chunk = tile_chunk<bfloat16>::size;
    constexpr int in_row = depth / chunk;
    for (int lane : group) {
      for (int i = lane; i < staged::rows * in_row; i += Group::size) {
        std::int64_t const at_row = row + i / in_row;
        std::int64_t const at_column = column + i % in_row * chunk;
        bool const is_inside = at_row < from.extent(0) && at_column < from.extent(1);
        auto const* const corner = is_inside ? &from(at_row, at_column) : from.data;
        copies_in_flight<Group>::begin(to.chunk(i / in_row, i % in_row * chunk),
                                       reinterpret_cast<tile_chunk<bfloat16> const*>(corner), is_inside);
      }
    }
  }
};

}  // namespace tessera_examples
