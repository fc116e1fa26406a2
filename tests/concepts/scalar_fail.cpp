// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Scalar has scalar_traits<T> with bits, exponent_bits, mantissa_bits
#include <cstdint>

#include <tessera/exec/cpu.hpp>
#include <tessera/shadow_kv.hpp>

#if defined(TESSERA_FAIL)
using element = std::int16_t;
#else
using element = tessera::bfloat16;
#endif

void decode(tessera::shadow_kv::cache_type<tessera::bfloat16> const&, tessera::offload_tokens<element> const&) {}
