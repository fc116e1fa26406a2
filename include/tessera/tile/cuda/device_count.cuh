// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A word of device memory by which thread blocks of one launch learn that others are done with something.
///
///     group.sync();                                                     // all of the block's writes, then one lane:
///     bool const is_last = arrive_on_device(&count) + 1 == blocks;
///     publish_on_device(&count, ready);                                 // the last one, after what it did itself
///     await_on_device(&count, ready);                                   // one lane; then group.sync()
///
/// What a block wrote before it arrived or published, those see that come after or have waited; they read it with
/// load_from_l2, for their own caches may be older. Whoever waits must be sure that the others run: works are taken in
/// order from a counter, and wait for earlier ones alone.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// How many arrived before.
__device__ __forceinline__ std::uint32_t arrive_on_device(std::uint32_t* count) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(count) : "memory");
  return before;
}

__device__ __forceinline__ void publish_on_device(std::uint32_t* count, std::uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(count), "r"(value) : "memory");
}

__device__ __forceinline__ void await_on_device(std::uint32_t const* count, std::uint32_t value) {
  while (true) {
    std::uint32_t found;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(count) : "memory");
    if (found == value) {
      return;
    }
    __nanosleep(40);
  }
}

}  // namespace v0
}  // namespace tessera
