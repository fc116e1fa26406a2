// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `choose_registers`: eight neighbouring values of an array in registers, chosen by a number that is known at run time
/// only, so that a loop over such an array need not be unrolled.
///
///     for (int eighth = 0; eighth < 12; ++eighth) {
///       float some[8];
///       choose_registers(some, sums, eighth);        // sums[8 * eighth] to sums[8 * eighth + 7], of 96
///       ...
///     }
///
/// It takes about log2 of the count branches in a row. Left to itself, the compiler puts the array into memory, or
/// chooses each value from all that it could be.
#pragma once

namespace tessera {
inline namespace v0 {

/// Copies values 8 * eighth to 8 * eighth + 7. All lanes of a warp choose the same eight.
template <int First = 0, int Registers, int Count = Registers / 8>
__device__ __forceinline__ void choose_registers(float (&some)[8], float const (&values)[Registers], int eighth) {
  static_assert(Registers % 8 == 0, "tessera: choose_registers takes whole eights");
  if constexpr (Count == 1) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Keeps branches from becoming selections.
      asm volatile("mov.b32 %0, %1;" : "=f"(some[i]) : "f"(values[8 * First + i]));
    }
  } else if (eighth < First + Count / 2) {
    choose_registers<First, Registers, Count / 2>(some, values, eighth);
  } else {
    choose_registers<First + Count / 2, Registers, Count - Count / 2>(some, values, eighth);
  }
}

}  // namespace v0
}  // namespace tessera
