// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `side_queue`: a second queue beside an executor, for work that may overlap with later work on the executor. For CUDA
/// it is a stream (exec/side_queue.cuh, which this header includes where nvcc compiles). The class in this header is
/// for executors whose work is done when run returns.
///
///     side_queue<Executor> side(exec, 2);
///     side.follow();                             // what comes now on the side sees all that exec was given so far
///     side.executor().run(program, count);
///     side.mark(0);
///     ...                                        // work on exec that needs none of it
///     side.join(0);                              // what comes now on exec sees all up to the mark
///
/// side_queue<cuda> side(exec, stream, 2) is on a stream of the caller's.
/// side_queue<Executor> side(exec, 2, true) has priority: where work of both queues could begin, that of the side queue
/// does. This is for work that takes few blocks and waits long, such as copies over a bus, and that would otherwise
/// wait for the other work's blocks to end.
#pragma once

#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/execution_options.hpp>

namespace tessera {
inline namespace v0 {

template <Executor Exec>
class side_queue {
 public:
  /// Uses the executor itself, which has no second queue.
  side_queue(Exec const& main, int /*marks*/, bool /*goes_first*/ = false) : executor_(main) {}
  side_queue(side_queue const&) = delete;
  side_queue& operator=(side_queue const&) = delete;

  /// The executor to run on.
  [[nodiscard]] Exec const& executor() const { return executor_; }
  /// Does nothing: what run() was given is done already.
  void follow() const {}
  /// Does nothing: what run() was given is done already.
  void mark(int) const {}
  /// Does nothing: what run() was given is done already.
  void join(int) const {}
  /// Does nothing: what run() was given is done already.
  void wait() const {}

 private:
  Exec executor_;
};

namespace detail {

/// Throws value_error where one of an executor and a side queue is explain()'s, on which nothing runs, and one is not.
template <class Exec, class Side>
void check_side(char const* function, Exec const& exec, Side const& side) {
  bool const is_dry = options_of(exec).is_dry;
  check<value_error>(options_of(side.executor()).is_dry == is_dry, function, ": the executor ",
                     is_dry ? "is explain()'s" : "is not explain()'s", " but the side queue's ",
                     is_dry ? "is not" : "is", "; make the side queue of the executor that the call gets");
}

/// Calls a function that uses a side queue. Where it throws, the executor waits for what the side was given, so that
/// nobody uses memory any more that the caller gives back then.
template <Executor Exec, class Function>
auto joining(side_queue<Exec> const& side, Function const& function) {
  try {
    return function();
  } catch (...) {
    side.mark(0);
    side.join(0);
    throw;
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/exec/side_queue.cuh>
#endif
