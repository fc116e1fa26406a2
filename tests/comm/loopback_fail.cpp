// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: ranks reduce no elements of this type
#include <cstdint>

#include <tessera/comm/loopback.hpp>
#include <tessera/exec/cpu.hpp>

#if defined(TESSERA_FAIL)
using element = std::uint8_t;
#else
using element = float;
#endif

void add_up(tessera::loopback& ranks, tessera::array_view<element> list) {
  ranks.all_reduce(tessera::cpu{}, list, tessera::rank_reduction::sum, list);
  ranks.reduce_scatter(tessera::cpu{}, list, tessera::rank_reduction::sum, list);
}
