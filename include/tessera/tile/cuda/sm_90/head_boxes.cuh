// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Copies boxes of the rows of heads by TMA (sm_90), as tile/cuda/sm_90/bulk_tensor.cuh does, but in three dimensions
/// of any strides, heads x rows x columns. A box lies in one head. Elements beyond the head's rows or columns, or in a
/// head beyond the last, read as zeros.
///
///     if (can_map_heads(keys)) {
///       tensor_map const map = make_head_map("factorize", keys, box_shape{64, 64});
///       ...
///     }
///
/// A program that holds the map copies boxes:
///
///     load_head_box(shared, map, full, head_coordinate{.column = 0, .row = 128, .head = 3});
#pragma once

#include <cstdint>

#include <tessera/core/check.hpp>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tile/head_coordinate.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

#if !defined(__CUDACC_RTC__)  // the host makes maps

/// Whether TMA can address heads x rows x columns: elements of a row lie next to each other, and rows and heads begin
/// at multiples of 16 bytes. Empty views have no map.
template <class T>
[[nodiscard]] bool can_map_heads(view<T, 3> heads) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t most_extent = 0x7fffffff;
  constexpr std::int64_t most_stride = std::int64_t{1} << 40;
  bool fits = !heads.is_empty() && reinterpret_cast<std::uintptr_t>(heads.data) % 16 == 0 &&
              (heads.stride(2) == 1 || heads.extent(2) == 1);
  for (int dimension = 0; dimension < 3; ++dimension) {
    fits = fits && heads.extent(dimension) <= most_extent;
  }
  for (int dimension = 0; dimension < 2; ++dimension) {
    std::int64_t const stride = heads.stride(dimension);
    fits = fits &&
           (heads.extent(dimension) == 1 || (stride > 0 && stride * bytes % 16 == 0 && stride < most_stride / bytes));
  }
  return fits;
}

namespace detail {

/// Makes a map by the driver, for make_head_map().
template <class T>
[[nodiscard]] tensor_map encode_head_map(char const* function, view<T, 3> heads, box_shape box) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  check<value_error>(can_map_heads(heads), function, ": heads of ", heads.extent(1), " x ", heads.extent(2),
                     " with strides ", heads.stride(0), ", ", heads.stride(1), " and ", heads.stride(2),
                     " cannot be copied by boxes: rows must begin at multiples of 16 bytes");
  check<value_error>(box.rows > 0 && box.rows <= 256, function, ": a box has ", box.rows, " rows but takes 1 to 256");
  check<value_error>(box.columns > 0 && box.columns * bytes <= 128 && box.columns * bytes % 16 == 0, function,
                     ": a row of a box has ", box.columns * bytes, " bytes but takes 16, 32, ... 128");
  std::int64_t const row_bytes =
      heads.extent(1) == 1 ? (heads.extent(2) * bytes + 15) / 16 * 16 : heads.stride(1) * bytes;
  std::int64_t const head_bytes = heads.extent(0) == 1 ? row_bytes * heads.extent(1) : heads.stride(0) * bytes;
  cuuint64_t const extents[3] = {static_cast<cuuint64_t>(heads.extent(2)), static_cast<cuuint64_t>(heads.extent(1)),
                                 static_cast<cuuint64_t>(heads.extent(0))};
  cuuint64_t const strides[2] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(head_bytes)};
  cuuint32_t const sizes[3] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows), 1};
  cuuint32_t const steps[3] = {1, 1, 1};
  using element = std::remove_const_t<T>;
  tensor_map made{};
  CUresult const result = encode_tiled_of_driver(function)(
      &made.map, tensor_map_type<element>(), 3, const_cast<element*>(heads.data), extents, strides, sizes, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, tensor_map_l2, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw device_error(join(function, ": cuTensorMapEncodeTiled refused ", heads.extent(0), " heads of ",
                            heads.extent(1), " x ", heads.extent(2), " with boxes of ", box.rows, " x ", box.columns,
                            " (CUresult ", static_cast<int>(result), ")"),
                       static_cast<int>(cudaErrorInvalidValue));
  }
  return made;
}

}  // namespace detail

/// Makes the map, or finds the one that this thread has made. Messages name `function`. Throws value_error for heads
/// that cannot be mapped or a box that is not valid.
template <class T>
[[nodiscard]] tensor_map make_head_map(char const* function, view<T, 3> heads, box_shape box) {
  return detail::remembered_tensor_map(detail::key_of_map(heads, box, box_swizzle::bytes_128),
                                       [&] { return detail::encode_head_map(function, heads, box); });
}

#endif  // !defined(__CUDACC_RTC__)

/// Copies a box from global to shared memory. `done` counts the box's bytes, also those outside of the heads.
__device__ __forceinline__ void load_head_box(void* shared, tensor_map const& map, shared_barrier& done,
                                              head_coordinate coordinate) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(detail::plain_shared_address(shared)),
      "l"(&map), "r"(detail::plain_shared_address(&done)), "r"(coordinate.column), "r"(coordinate.row),
      "r"(coordinate.head)
      : "memory");
}

/// Copies a box to the same address in all thread blocks of the cluster whose bits are set in `ranks`; each block's own
/// `done` counts its bytes.
__device__ __forceinline__ void load_head_box_for_cluster(void* shared, tensor_map const& map, shared_barrier& done,
                                                          head_coordinate coordinate, std::uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(detail::plain_shared_address(shared)),
      "l"(&map), "r"(detail::plain_shared_address(&done)), "r"(coordinate.column), "r"(coordinate.row),
      "r"(coordinate.head), "h"(ranks)
      : "memory");
}

}  // namespace v0
}  // namespace tessera
