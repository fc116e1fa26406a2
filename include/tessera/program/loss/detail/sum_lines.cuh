// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sums in a warp's registers on their way to memory: `sum_staging` and `stage_box`, through which lanes get channels
/// that are neighbours, and `put_boxes`, which writes fp32 sums, or adds them, in whole lines by a short loop.
///
/// Unrolled, with one copy for each box, the epilogues of loss_gradient_products are 140 KB of instructions, of which a
/// tile runs half, once: more than a multiprocessor keeps. This loop has one copy for each kind of row; what it gains
/// where sums are short is in tuning/loss/linear_loss.hpp.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/add_to_memory.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Shared memory of a warp for 16 rows of 32 sums. The 16 bytes c of row r lie at 128 r + 16 (c ^ (r % 8)).
struct sum_staging {
  /// The warp's sums.
  alignas(128) float values[16 * 32];
};

namespace detail {

/// Boxes of 32 channels of a warp's 16 rows, of which a lane has so many registers.
template <int Registers>
inline constexpr int staged_boxes = Registers / 16;

/// Writes box number `Box` of a warp's sums (registers as warpgroup_mma.cuh says) to its shared memory.
template <int Box, int Registers>
__device__ __forceinline__ void stage_box(float const (&sums)[Registers], std::uint32_t shared, std::uint32_t lane) {
  sync_warp();  // all lanes have read the box before
#pragma unroll
  for (int part = 0; part < 8; ++part) {
    std::uint32_t const row = lane / 4 + 8 * (part % 2);
    std::uint32_t const chunk = (2 * (part / 2) + (lane % 4) / 2) ^ (row % 8);
    int const reg = 16 * Box + 4 * (part / 2) + 2 * (part % 2);
    uint2 const pair{bit_cast<std::uint32_t>(sums[reg]), bit_cast<std::uint32_t>(sums[reg + 1])};
    store_shared_u32x2(shared + row * 128 + chunk * 16 + lane % 2 * 8, pair);
  }
  sync_warp();
}

/// What becomes of sums: they are written, added to what is there, or added in memory without being read.
enum class line_use { written, added, added_in_memory };

/// A lane's 16 bytes of a row.
struct line_place {
  float* at;
  std::int32_t count;  ///< how many channels there are from that on; 0 or less: the row takes no sums
  float factor;        ///< of the row's sums

  __device__ __forceinline__ float4 read() const {
    if (count >= 4) {
      return *reinterpret_cast<float4 const*>(at);
    }
    return {at[0], count > 1 ? at[1] : 0.0F, count > 2 ? at[2] : 0.0F, 0.0F};
  }
  __device__ __forceinline__ void write(float4 const& line) const {
    if (count >= 4) {
      *reinterpret_cast<float4*>(at) = line;
      return;
    }
    at[0] = line.x;
    if (count > 1) {
      at[1] = line.y;
    }
    if (count > 2) {
      at[2] = line.z;
    }
  }
};

__device__ __forceinline__ float4 product(float4 const& line, float factor) {
  return {line.x * factor, line.y * factor, line.z * factor, line.w * factor};
}

/// Takes the box of sums in shared memory. A lane has 16 bytes of rows lane / 8 + 4 i, 0 <= i < 4, so that eight lanes
/// have a line. Rows: see put_boxes.
template <class Rows>
__device__ __forceinline__ void put_lines(std::uint32_t shared, std::uint32_t lane, Rows const& rows,
                                          std::int32_t channel) {
  float4 lines[4];
#pragma unroll
  for (std::uint32_t i = 0; i < 4; ++i) {
    std::uint32_t const row = lane / 8 + 4 * i;
    lines[i] = load_shared_f32x4(shared + row * 128 + ((lane % 8) ^ (row % 8)) * 16);
  }
#pragma unroll
  for (std::uint32_t i = 0; i < 4; ++i) {
    line_place const place = rows.place(lane / 8 + 4 * i, channel);
    if (place.count <= 0) {
      continue;
    }
    float4 line = product(product(lines[i], place.factor), rows.factor);
    if (rows.use == line_use::added_in_memory && place.count >= 4) {
      add_to_memory(place.at, line);
      continue;
    }
    if (rows.use != line_use::written) {
      float4 const before = place.read();
      line = {line.x + before.x, line.y + before.y, line.z + before.z, line.w + before.w};
    }
    place.write(rows.finished(lane / 8 + 4 * i, line));
  }
}

/// Puts a warp's 16 rows of sums, whose registers are used up, a box of 32 channels at a time.
///
/// Rows has `use`, the `factor` of all sums before anything is added, `place(row, channel)`, the line_place in one of
/// the warp's 16 rows, and `finished(row, line)`, what is written there. `channel`: that of the first sum.
template <int Registers, class Rows>
__device__ __forceinline__ void put_boxes(float (&sums)[Registers], sum_staging& staging, Rows const& rows,
                                          std::int32_t channel) {
  std::uint32_t const shared = shared_address(staging.values);
  auto lane = static_cast<std::uint32_t>(thread_index() % 32);
#pragma unroll 1
  for (int box = 0; box < staged_boxes<Registers>; ++box) {
    pin_register(lane);  // else all addresses are made before the loop, and take registers
    stage_box<0>(sums, shared, lane);
    put_lines(shared, lane, rows, channel + 32 * box + 4 * static_cast<std::int32_t>(lane % 8));
#pragma unroll
    for (int i = 0; i + 16 < Registers; ++i) {
      sums[i] = sums[i + 16];
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
