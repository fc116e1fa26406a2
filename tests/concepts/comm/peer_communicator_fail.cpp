// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a PeerCommunicator has meet\(executor\), after which all have what others stored
#include <tessera/comm/loopback.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/laws/comm/peer_communicator.hpp>

#if defined(TESSERA_FAIL)
class chosen : private tessera::loopback {
 public:
  using loopback::all_gather, loopback::all_reduce, loopback::grouped, loopback::rank, loopback::receive;
  using loopback::reduce_scatter, loopback::reduces_in_rank_order, loopback::send, loopback::share, loopback::size;
};
#else
using chosen = tessera::loopback;
#endif

void check(chosen& ranks, tessera::array_view<std::byte> memory) {
  tessera::testing::check_peer_communicator_laws(tessera::cpu{}, ranks, memory);
}
