// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `side_queue` for CUDA: a stream of its own, tied to the executor's stream by events. Nothing but wait() waits on the
/// host. It can be captured in a graph, where follow, mark and join of one piece of work belong into the same capture.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.hpp>

namespace tessera {
inline namespace v0 {

/// A stream beside the executor's, and events that order the two.
template <class Architectures>
class side_queue<basic_cuda<Architectures>> {
 public:
  /// Makes the stream and room for `marks` marks; throws device_error.
  side_queue(basic_cuda<Architectures> const& main, int marks) : main_(main.stream), executor_(main) {
    detail::device_guard const guard(executor_.state->device());
    events_.resize(static_cast<std::size_t>(marks) + 1, nullptr);
    try {
      check_cuda(cudaStreamCreateWithFlags(&executor_.stream, cudaStreamNonBlocking), "side_queue",
                 "cudaStreamCreateWithFlags");
      has_stream_ = true;
      for (cudaEvent_t& event : events_) {
        check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "side_queue", "cudaEventCreateWithFlags");
      }
    } catch (...) {
      destroy();
      throw;
    }
  }
  side_queue(side_queue const&) = delete;
  side_queue& operator=(side_queue const&) = delete;
  /// What is given back on the executor's stream after this is not used by the side any more.
  ~side_queue() {
    static_cast<void>(cudaEventRecord(events_[0], executor_.stream));
    static_cast<void>(cudaStreamWaitEvent(main_, events_[0], 0));
    destroy();
  }

  /// What to run on: the side's own stream.
  [[nodiscard]] basic_cuda<Architectures> const& executor() const { return executor_; }
  /// What comes now on the side waits, on the device, for all that the executor was given so far.
  void follow() const { order("side_queue.follow", events_[0], main_, executor_.stream); }
  /// Remembers all that the side was given so far as mark `which`, from 0 on.
  void mark(int which) const {
    detail::device_guard const guard(executor_.state->device());
    check_cuda(cudaEventRecord(event(which), executor_.stream), "side_queue.mark", "cudaEventRecord");
  }
  /// What comes now on the executor waits, on the device, for what mark `which` remembers.
  void join(int which) const {
    detail::device_guard const guard(executor_.state->device());
    check_cuda(cudaStreamWaitEvent(main_, event(which), 0), "side_queue.join", "cudaStreamWaitEvent");
  }
  /// Waits on the host for all that the side was given; throws device_error.
  void wait() const {
    detail::device_guard const guard(executor_.state->device());
    check_cuda(cudaStreamSynchronize(executor_.stream), "side_queue.wait", "cudaStreamSynchronize");
  }

 private:
  [[nodiscard]] cudaEvent_t event(int which) const { return events_.at(static_cast<std::size_t>(which) + 1); }

  void order(char const* function, cudaEvent_t event, cudaStream_t before, cudaStream_t after) const {
    detail::device_guard const guard(executor_.state->device());
    check_cuda(cudaEventRecord(event, before), function, "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(after, event, 0), function, "cudaStreamWaitEvent");
  }

  void destroy() {
    for (cudaEvent_t event : events_) {
      if (event != nullptr) {
        static_cast<void>(cudaEventDestroy(event));
      }
    }
    if (has_stream_) {
      static_cast<void>(cudaStreamDestroy(executor_.stream));
    }
  }

  cudaStream_t main_;
  basic_cuda<Architectures> executor_;
  std::vector<cudaEvent_t> events_;  ///< the first for follow, then one a mark
  bool has_stream_ = false;
};

}  // namespace v0
}  // namespace tessera
