// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `on_ranks`: what runs on several ranks, in one process without a GPU: each rank of `threads` in a thread.
///
///     tessera::testing::on_ranks(8, [&](tessera::threads& ranks) {
///       my_algorithm(tessera::cpu{.threads = 1}, ranks, parts.at(ranks.rank()));
///     });
///
/// Returns when all ranks have ended. A rank leaves the others when the function returns or throws, so that none waits
/// for it for ever.
#pragma once

#include <future>
#include <utility>
#include <vector>

#include <tessera/comm/threads.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

/// Calls `function(threads&)` in a thread for each of `count` ranks, 1 or more. Throws what the function threw on the
/// first rank that threw, in the order of the ranks.
template <class Function>
void on_ranks(int count, Function const& function) {
  std::vector<std::future<void>> workers;  // before the ranks: where a thread does not start, the others learn so
  std::vector<threads> ranks = threads::make(count);
  for (threads& rank : ranks) {
    workers.push_back(std::async(std::launch::async, [&function, own = std::move(rank)]() mutable {
      threads handle = std::move(own);
      function(handle);
    }));
  }
  for (std::future<void>& worker : workers) {
    worker.wait();
  }
  for (std::future<void>& worker : workers) {
    worker.get();
  }
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
