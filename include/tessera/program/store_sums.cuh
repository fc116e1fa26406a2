// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Epilogues of gemm_on_warpgroups that write a matrix: `store_sums_by_boxes` through shared memory and the copy
/// engine, and `store_sums_directly` for matrices whose rows do not begin at multiples of 16 bytes.
///
/// Map: see program/linear_map.hpp.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/program/store_sums.hpp>
#include <tessera/tile/cuda/barrier.cuh>
#include <tessera/tile/cuda/bulk_tensor.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Each warp writes its 16 rows in boxes of 128 bytes by 16, two under way at a time. Elements of 2 or 4 bytes.
template <class Output, class Map>
struct store_sums_by_boxes {
  static_assert(sizeof(Output) == 2 || sizeof(Output) == 4, "tessera: boxes of sums have elements of 2 or 4 bytes");
  static constexpr int box_rows = 16;
  static constexpr int box_columns = 128 / static_cast<int>(sizeof(Output));
  struct scratch_type {
    alignas(1024) unsigned char box[2][128 * box_rows];
  };

  tensor_map target;  ///< boxes of 16 rows of 128 bytes
  std::int32_t rows;
  std::int32_t columns;
  Map map;

  __device__ __forceinline__ void prepare() const { prefetch_tensor_map(target); }

  template <class Sum, int Registers>
  __device__ __forceinline__ void operator()(Sum const (&sums)[Registers], box_place place,
                                             scratch_type& scratch) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int boxes = 2 * Registers / box_columns;
    static_assert(boxes % 2 == 0);
#pragma unroll
    for (int box = 0; box < boxes; ++box) {
      const std::int32_t column = place.column + box * box_columns;
      if (lane == 0) {
        await_box_reads<1>();
      }
      __syncwarp();
      write_box(sums, box, {column, place.row}, detail::plain_shared_address(scratch.box[box % 2]), lane);
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) {
        if (column < columns && place.row < rows) {
          store_box(target, scratch.box[box % 2], {column, place.row});
        }
        commit_box_stores();
      }
    }
  }

  __device__ __forceinline__ void finish() const {
    await_box_stores<0>();
  }

 private:
  /// The 8 columns number `eighth` of a box: a pair of sums for each of the rows group and group + 8.
  template <class Sum, int Registers>
  __device__ __forceinline__ auto mapped(Sum const (&sums)[Registers], int reg, box_place place) const {
    return map(sums[reg], min(place.row, rows - 1), min(place.column, columns - 1));
  }

  template <class Sum, int Registers>
  __device__ __forceinline__ void write_box(Sum const (&sums)[Registers], int box, box_place place,
                                            std::uint32_t shared, int lane) const {
    constexpr int eighths = box_columns / 8;
    const box_place own{place.column + 2 * (lane % 4), place.row + lane / 4};
    if constexpr (sizeof(Output) == 2) {
      const std::uint32_t row = shared + static_cast<std::uint32_t>(lane % 16) * 128U;
      const auto turn = static_cast<std::uint32_t>(lane % 8);
#pragma unroll
      for (int eighth = 0; eighth < eighths; eighth += 2) {
        std::uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int part = eighth + i / 2;
          const int reg = 4 * (box * eighths + part) + 2 * (i % 2);
          const box_place at{own.column + 8 * part, own.row + 8 * (i % 2)};
          word[i] = pack_pair<Output>(mapped(sums, reg, at), mapped(sums, reg + 1, {at.column + 1, at.row}));
        }
        const std::uint32_t chunk = static_cast<std::uint32_t>(eighth + lane / 16) ^ turn;
        store_matrix_x4(row + chunk * 16U, word[0], word[1], word[2], word[3]);
      }
    } else {
#pragma unroll
      for (int part = 0; part < 2 * eighths; ++part) {
        const int reg = 4 * (box * eighths + part / 2) + 2 * (part % 2);
        const box_place at{own.column + 8 * (part / 2), own.row + 8 * (part % 2)};
        const auto row = static_cast<std::uint32_t>(lane / 4 + 8 * (part % 2));
        const std::uint32_t chunk = static_cast<std::uint32_t>(2 * (part / 2) + (lane % 4) / 2) ^ (row % 8);
        const uint2 pair{
            bit_cast<std::uint32_t>(detail::stored_sum<Output>(mapped(sums, reg, at))),
            bit_cast<std::uint32_t>(detail::stored_sum<Output>(mapped(sums, reg + 1, {at.column + 1, at.row})))};
        store_shared_u32x2(shared + row * 128U + chunk * 16U + static_cast<std::uint32_t>(lane % 2) * 8U, pair);
      }
    }
  }
};

/// Any strides, any storage type: each thread writes its own sums.
template <class Output, class Map>
struct store_sums_directly {
  struct scratch_type {};

  matrix_view<Output> target;
  Map map;

  __device__ __forceinline__ void prepare() const {}

  template <class Sum, int Registers>
  __device__ __forceinline__ void operator()(Sum const (&sums)[Registers], box_place place, scratch_type&) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_row = place.row + lane / 4;
    const std::int64_t first_column = place.column + 2 * (lane % 4);
#pragma unroll
    for (int reg = 0; reg < Registers; ++reg) {
      const std::int64_t row = first_row + reg / 2 % 2 * 8;
      const std::int64_t column = first_column + reg / 4 * 8 + reg % 2;
      if (row < target.extent(0) && column < target.extent(1)) {
        target(row, column) = detail::stored_sum<Output>(map(sums[reg], row, column));
      }
    }
  }

  __device__ __forceinline__ void finish() const {}
};

}  // namespace v0
}  // namespace tessera
