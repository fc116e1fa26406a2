// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `side_queue` for CUDA: a stream of its own, or one of the caller's, tied to the executor's stream by events. Only
/// wait() waits on the host. It can be captured in a graph; follow, mark and join of the same work must then be in the
/// same capture.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/core/check.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.hpp>

namespace tessera {
inline namespace v0 {

/// A stream beside the executor's, and events that order the two.
template <class Architectures>
class side_queue<basic_cuda<Architectures>> {
 public:
  /// Makes the stream and room for `marks` marks; throws device_error.
  side_queue(basic_cuda<Architectures> const& main, int marks, bool goes_first = false)
      : main_(main.stream), executor_(main) {
    build(marks, [&] {
      int least = 0;
      int greatest = 0;
      check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "side_queue", "cudaDeviceGetStreamPriorityRange");
      check_cuda(cudaStreamCreateWithPriority(&executor_.stream, cudaStreamNonBlocking, goes_first ? greatest : least),
                 "side_queue", "cudaStreamCreateWithPriority");
      has_stream_ = true;
    });
  }
  /// Makes a side queue on `stream`, a stream of the caller's on the executor's device. It keeps its priority and must
  /// outlive this. Throws value_error where it is the executor's own stream, and device_error.
  side_queue(basic_cuda<Architectures> const& main, cudaStream_t stream, int marks)
      : main_(main.stream), executor_(main) {
    check<value_error>(stream != main.stream, "side_queue: the side's stream is the executor's own");
    executor_.stream = stream;
    build(marks, [] {});
  }
  side_queue(side_queue const&) = delete;
  side_queue& operator=(side_queue const&) = delete;
  /// Memory that is given back on the executor's stream after this is not used by the side any more.
  ~side_queue() {
    static_cast<void>(cudaEventRecord(events_[0], executor_.stream));
    static_cast<void>(cudaStreamWaitEvent(main_, events_[0], 0));
    destroy();
  }

  /// The executor to run on: that of the side's own stream.
  [[nodiscard]] basic_cuda<Architectures> const& executor() const { return executor_; }
  /// Makes later work on the side wait, on the device, for all that the executor was given so far.
  void follow() const { order("side_queue.follow", events_[0], main_, executor_.stream); }
  /// Remembers all that the side was given so far as mark `which`, which counts from 0.
  void mark(int which) const {
    detail::device_guard const guard(executor_.state->device());
    check_cuda(cudaEventRecord(event(which), executor_.stream), "side_queue.mark", "cudaEventRecord");
  }
  /// Makes later work on the executor wait, on the device, for what mark `which` remembers.
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
  /// Makes the stream, if there is one to make, and the events.
  template <class MakeStream>
  void build(int marks, MakeStream const& make_stream) {
    check<value_error>(marks >= 0, "side_queue: ", marks, " marks are asked for but 0 is the least");
    detail::device_guard const guard(executor_.state->device());
    events_.resize(static_cast<std::size_t>(marks) + 1, nullptr);
    try {
      make_stream();
      for (cudaEvent_t& event : events_) {
        check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "side_queue", "cudaEventCreateWithFlags");
      }
    } catch (...) {
      destroy();
      throw;
    }
  }

  [[nodiscard]] cudaEvent_t event(int which) const {
    int const marks = static_cast<int>(events_.size()) - 1;
    check<value_error>(which >= 0 && which < marks, "side_queue: mark ", which, " is asked for but there are ", marks);
    return events_[static_cast<std::size_t>(which) + 1];
  }

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
  std::vector<cudaEvent_t> events_;  ///< the first is for follow, then there is one for each mark
  bool has_stream_ = false;
};

}  // namespace v0
}  // namespace tessera
