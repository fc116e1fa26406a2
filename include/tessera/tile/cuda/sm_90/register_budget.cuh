// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Moves registers between warpgroups of a thread block (sm_90a): warpgroups that only start copies give theirs to
/// warpgroups that multiply.
///
///     if (is_producer) {
///       lower_registers<24>();
///       ...
///     } else {
///       raise_registers<240>();
///       ...
///     }
///
/// All warps of a warpgroup call it once. The kernel needs a cap on registers at entry, which tessera::cuda gives it.
/// For P producers and C consumers among the warpgroups of a block, P * lowered + C * raised must not exceed (P + C) *
/// cap.
#pragma once

namespace tessera {
inline namespace v0 {

/// Whether a thread can have so many registers: a multiple of 8 from 24 to 256.
template <int Registers>
inline constexpr bool is_register_budget = Registers % 8 == 0 && Registers >= 24 && Registers <= 256;

/// Whether so many warpgroups have room for their budgets: `budgets` is the sum of what a thread of each is to have.
/// At the kernel's entry each thread has as many registers as all can have, a multiple of 8. For more than these
/// raise_registers() would wait for ever.
constexpr bool has_register_budgets(int warpgroups, int budgets) {
  return budgets <= warpgroups * (65536 / (128 * warpgroups) / 8 * 8);
}

/// Releases all but `Registers` registers of each thread.
template <int Registers>
__device__ __forceinline__ void lower_registers() {
  static_assert(is_register_budget<Registers>, "tessera: a register budget is a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Waits until enough registers are free for each thread to have `Registers`, and takes them.
template <int Registers>
__device__ __forceinline__ void raise_registers() {
  static_assert(is_register_budget<Registers>, "tessera: a register budget is a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace v0
}  // namespace tessera
