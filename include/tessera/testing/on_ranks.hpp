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

namespace detail {

/// What each rank calls, as one type for all functions: `std::async` and its state are a hundred functions for each
/// type that they are given, which took a fifth of the time to compile tests of ranks.
struct rank_function {
  virtual void call(threads& rank) const = 0;

 protected:
  ~rank_function() = default;
};

template <class Function>
struct rank_function_of final : rank_function {
  Function const& function;

  explicit rank_function_of(Function const& f) : function(f) {}

  void call(threads& rank) const override { function(rank); }
};

inline void call_on_ranks(int count, rank_function const& function) {
  std::vector<std::future<void>> workers;  // before the ranks: where a thread does not start, the others learn so
  std::vector<threads> ranks = threads::make(count);
  workers.reserve(ranks.size());
  for (threads& rank : ranks) {
    workers.push_back(std::async(std::launch::async, [&function, own = std::move(rank)]() mutable {
      threads handle = std::move(own);
      function.call(handle);
    }));
  }
  for (std::future<void>& worker : workers) {
    worker.wait();
  }
  for (std::future<void>& worker : workers) {
    worker.get();
  }
}

}  // namespace detail

/// Calls `function(threads&)` in a thread for each of `count` ranks, 1 or more. Throws what the function threw on the
/// first rank that threw, in the order of the ranks.
template <class Function>
void on_ranks(int count, Function const& function) {
  detail::call_on_ranks(count, detail::rank_function_of<Function>(function));
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
