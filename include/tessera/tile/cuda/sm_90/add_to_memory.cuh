// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `add_to_memory`: adds four floats to memory without reading it, on sm_90 and later. Nothing waits for the sums: a
/// warp that adds goes on at once.
#pragma once

namespace tessera {
inline namespace v0 {

/// Adds each value to its neighbour of four floats at a multiple of 16 bytes, each sum rounded to the nearest;
/// subnormal numbers may count as zeros. Where several threads add to one float, the order is not determined.
__device__ __forceinline__ void add_to_memory(float* at, float4 const& values) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)),
               "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w)
               : "memory");
}

}  // namespace v0
}  // namespace tessera
