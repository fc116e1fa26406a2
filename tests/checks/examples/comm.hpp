// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of communicators call by these names: comm.cmake.
#pragma once

#include <map>
#include <thread>
#include <vector>

#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/testing/on_ranks.hpp>
#include <tessera/view/array_view.hpp>

namespace pieces {

/// Names functions that are templates, so that these are compiled.
template <auto...>
struct compiled {};

/// Adds up the lists of all ranks.
template <class Exec, class Ranks>
void my_algorithm(Exec const& exec, Ranks& ranks, tessera::array_view<float> part) {
  ranks.all_reduce(exec, part, tessera::rank_reduction::sum, part);
}

}  // namespace pieces
