// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `clear_vectors`: clears the upper halves of the processor's vector registers where a block ends.
/// A function that is `[[gnu::target("avx2")]]` begins with `detail::clear_vectors const at_end;`.
///
/// Code for SSE2, which the rest of a program is, waits for the upper halves that code for AVX has left in registers,
/// at each instruction: whole programs ran up to 12 times as long. Compilers clear them where such functions return,
/// g++ from -O2 on alone (its pass is one of -fexpensive-optimizations); so Debug builds need it to be said. Where the
/// compiler does so, too, the machine code has it once. A function that others for AVX call leaves it to these.
#pragma once

#include <tessera/config.hpp>

#if defined(__x86_64__) && defined(__GNUC__)

namespace tessera {
inline namespace v0 {
namespace detail {

/// Has no state. Cost: an instruction, of one cycle.
struct clear_vectors {
  clear_vectors() = default;
  clear_vectors(clear_vectors const&) = delete;
  clear_vectors& operator=(clear_vectors const&) = delete;
  /// Clears bits 128 and up of registers 0 to 15; those above have no such cost.
  [[gnu::target("avx"), gnu::always_inline]] ~clear_vectors() { __builtin_ia32_vzeroupper(); }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#endif
