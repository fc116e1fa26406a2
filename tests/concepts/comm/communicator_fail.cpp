// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Communicator has grouped\(function\), which calls a function that sends and receives
#include <tessera/comm/all_to_all.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/exec/cpu.hpp>

#if defined(TESSERA_FAIL)
class chosen : private tessera::loopback {
 public:
  using loopback::all_gather, loopback::all_reduce, loopback::rank, loopback::receive, loopback::reduce_scatter;
  using loopback::reduces_in_rank_order, loopback::send, loopback::size;
};
#else
using chosen = tessera::loopback;
#endif

void exchange(chosen& ranks, tessera::array_view<float const> given, tessera::array_view<float> made) {
  tessera::all_to_all(tessera::cpu{}, ranks, given, made);
}
