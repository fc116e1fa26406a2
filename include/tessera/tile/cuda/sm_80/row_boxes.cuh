// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_boxes<T>`: how epilogues of gemm_ring write boxes of 16 rows x 64 results of a warp without TMA: through shared
/// memory, where the 16 bytes c of row r lie at 128 r + 16 (c ^ (r % 8)), so that eight lanes write 128 bytes of a row.
#pragma once

#include <cstdint>

#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// T: a type of 2 bytes. Of columns beyond the matrix zeros are written, up to a multiple of 8, for which rows have
/// room.
template <class T>
struct row_boxes {
  static_assert(sizeof(T) == 2);
  struct scratch_type {
    alignas(128) unsigned char box[16 * 128];  ///< a box of a warp
  };

  matrix_view<T> target;  ///< rows begin at multiples of 16 bytes and have room for a multiple of 8 columns
  /// What an epilogue does before its first tile: nothing.
  __device__ __forceinline__ void prepare() const {}
  /// What an epilogue does after its last tile: nothing.
  __device__ __forceinline__ void finish() const {}

  /// The address of a box in shared memory, once all lanes have written the box before.
  __device__ __forceinline__ static std::uint32_t open_box(scratch_type& scratch, int) {
    sync_warp();
    return shared_address(scratch.box);
  }
  /// Writes pairs of rows lane / 4 and lane / 4 + 8 to 16 columns of an open box.
  __device__ __forceinline__ static void write_columns(std::uint32_t shared, int quarter, std::uint32_t first,
                                                       std::uint32_t second, std::uint32_t third,
                                                       std::uint32_t fourth) {
    auto const lane = static_cast<std::uint32_t>(thread_index() % 32);
    std::uint32_t const row = shared + lane / 4 * 128 + lane % 4 * 4;
    std::uint32_t const chunk = (2 * static_cast<std::uint32_t>(quarter) ^ lane / 4) * 16;
    store_shared_u32(row + chunk, first);
    store_shared_u32(row + chunk + 8 * 128, second);
    store_shared_u32(row + (chunk ^ 16), third);
    store_shared_u32(row + (chunk ^ 16) + 8 * 128, fourth);
  }
  /// Writes the box of a warp whose sums begin at `coordinate`.
  template <class... Policy>
  __device__ __forceinline__ void close_box(scratch_type const& scratch, int box, box_coordinate coordinate,
                                            Policy...) const {
    auto const lane = static_cast<std::uint32_t>(thread_index() % 32);
    std::uint32_t const shared = shared_address(scratch.box);
    std::int64_t const column = std::int64_t{coordinate.column} + box * 64 + lane % 8 * 8;
    sync_warp();
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      std::uint32_t const in_box = 4 * i + lane / 8;
      std::int64_t const row = std::int64_t{coordinate.row} + in_box;
      if (row < target.extent(0) && column < target.extent(1)) {
        float4 const words = load_shared_f32x4(shared + in_box * 128 + (lane % 8 ^ in_box % 8) * 16);
        *reinterpret_cast<uint4*>(&target(row, column)) = inside(words, static_cast<int>(target.extent(1) - column));
      }
    }
  }

 private:
  /// Eight values, of which those from `count` on are zeros.
  __device__ __forceinline__ static uint4 inside(float4 words, int count) {
    std::uint32_t const bits[4] = {__float_as_uint(words.x), __float_as_uint(words.y), __float_as_uint(words.z),
                                   __float_as_uint(words.w)};
    std::uint32_t kept[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      kept[i] = count >= 2 * i + 2 ? bits[i] : count == 2 * i + 1 ? bits[i] & 0xffffU : 0U;
    }
    return {kept[0], kept[1], kept[2], kept[3]};
  }
};

}  // namespace v0
}  // namespace tessera
