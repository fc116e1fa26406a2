// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// PeerCommunicator: a Communicator whose ranks store into each other's memory.
///
///     struct tell_all {
///       template <class Exec, tessera::PeerCommunicator<Exec> Ranks>
///       static void forward(Exec const& exec, Ranks& ranks, tessera::array_view<std::byte> memory) {
///         std::vector<std::byte*> const at = ranks.share(exec, memory);      // memory of all ranks, from here on
///         exec.copy(memory.slice(0, 0, 16), tessera::array_view<std::byte>(at.back() + 16, 16));  // of the last rank
///         ranks.meet(exec);                                                  // what all stored is there
///       }
///     };
///
/// Laws:
///   * share and meet are called by all ranks, in one order with each other and with collectives.
///   * share() gives the address, for this rank's executor, at which the memory of each rank begins, in their order;
///     the own one is where this rank's memory is. All memory has one size. What an executor is given after share()
///     may store into any of it: what other ranks' executors were given before their share() is done by then.
///   * What an executor is given after meet() reads what all ranks' executors stored before their meet().
///   * A rank may read its own memory until its next share(), which other ranks' stores wait for.
///   * Wrong arguments throw shape_error or value_error, as of any Communicator, and so does memory that the others
///     cannot store to.
///   * No call waits for the executor's stream. One without a stream waits for the other ranks.
/// Models: loopback, threads; nccl of memory that nccl_memory registered.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Memory that ranks share; views are complete where it is instantiated.
template <class C, template <class, int> class View = view>
struct shared_memory_archetype {
  View<std::byte, 1> own;
};

}  // namespace detail

// clang-format off
template <class C, class Exec>
concept PeerCommunicator = Communicator<C, Exec> &&
    (requires(C& c, Exec const& e, detail::shared_memory_archetype<C> with) {
       requires std::is_same_v<decltype(c.share(e, with.own)), std::vector<std::byte*>>;
     }
        || because<"a PeerCommunicator says where memory is: std::vector<std::byte*> share(executor, own memory)">) &&
    (requires(C& c, Exec const& e) { c.meet(e); }
        || because<"a PeerCommunicator has meet(executor), after which all have what others stored">);
// clang-format on

}  // namespace v0
}  // namespace tessera
