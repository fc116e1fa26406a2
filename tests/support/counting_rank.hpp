// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A Communicator of one rank that counts how often it reduces.
#pragma once

#include <type_traits>

#include <tessera/comm/loopback.hpp>

namespace tessera_test {

struct counting_rank : tessera::loopback {
  int reductions = 0;

  template <tessera::Executor Exec, class T>
  void all_reduce(Exec const& exec, tessera::array_view<std::type_identity_t<T> const> source,
                  tessera::rank_reduction reduction, tessera::array_view<T> target) {
    ++reductions;
    loopback::all_reduce(exec, source, reduction, target);
  }
  template <tessera::Executor Exec, class T>
  void reduce_scatter(Exec const& exec, tessera::array_view<std::type_identity_t<T> const> source,
                      tessera::rank_reduction reduction, tessera::array_view<T> target) {
    ++reductions;
    loopback::reduce_scatter(exec, source, reduction, target);
  }
};

}  // namespace tessera_test
