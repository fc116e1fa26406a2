// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

/// value = value * factor + addend, after a while: what is not ordered comes out wrong.
struct slow_step {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<int> value;
  int factor;
  int addend;
  int microseconds;
  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t, scratch_type&) const {
    for (int i = 0; i < microseconds; ++i) {
      __nanosleep(1000);
    }
    for (int lane : group) {
      if (is_first(lane)) {
        value[0] = value[0] * factor + addend;
      }
    }
  }
};

/// Waits until the host writes to `flag`, at most a few seconds.
struct waits_for_host {
  static constexpr int lanes = 32;
  struct scratch_type {};
  int const volatile* flag;
  array_view<int> timed_out;
  template <class Group>
  __device__ void operator()(Group const&, std::int64_t, scratch_type&) const {
    for (int i = 0; i < 5'000'000 && *flag == 0; ++i) {
      __nanosleep(1000);
    }
    timed_out[0] = *flag == 0 ? 1 : 0;
  }
};

struct own_stream {
  cudaStream_t handle = nullptr;
  own_stream() { tessera_test::cuda_ok(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  own_stream(own_stream const&) = delete;
  own_stream& operator=(own_stream const&) = delete;
  ~own_stream() { static_cast<void>(cudaStreamDestroy(handle)); }
};

int downloaded(tessera::cuda const& exec, buffer<int> const& value) {
  std::vector<int> found(1);
  exec.copy(value, found);
  exec.wait();
  return found[0];
}

}  // namespace

TEST_CASE("a side queue sees what its executor was given before follow, and is seen after join", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  own_stream const stream;
  tessera::cuda const exec{.stream = stream.handle};
  side_queue<tessera::cuda> const side(exec, 2);
  CHECK(side.executor().stream != exec.stream);
  CHECK(side.executor().status() == exec.status());
  buffer<int> value(exec, 1);
  exec.clear(value);
  int expected = 0;
  for (int round = 0; round < 4; ++round) {
    exec.run(slow_step{value, 3, 1, 300}, 1);
    side.follow();
    side.executor().run(slow_step{value, 5, 2, 300}, 1);
    side.mark(round % 2);
    side.join(round % 2);
    exec.run(slow_step{value, 7, 3, 0}, 1);
    expected = ((expected * 3 + 1) * 5 + 2) * 7 + 3;
  }
  CHECK(downloaded(exec, value) == expected);
}

TEST_CASE("to join a mark does not wait for what the side was given later", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  own_stream const stream;
  tessera::cuda const exec{.stream = stream.handle};
  pinned_memory pinned;
  buffer<int> flag(1, pinned);
  *static_cast<int volatile*>(flag.data()) = 0;
  buffer<int> value(exec, 1);
  buffer<int> timed_out(exec, 1);
  exec.clear(value);
  exec.clear(timed_out);
  side_queue<tessera::cuda> const side(exec, 1);
  side.follow();
  side.executor().run(slow_step{value, 0, 5, 300}, 1);
  side.mark(0);
  side.executor().run(waits_for_host{flag.data(), timed_out}, 1);
  side.join(0);
  exec.run(slow_step{value, 2, 1, 0}, 1);
  CHECK(downloaded(exec, value) == 11);
  *static_cast<int volatile*>(flag.data()) = 1;
  side.wait();
  CHECK(downloaded(exec, timed_out) == 0);
}

TEST_CASE("what comes on the executor after a side queue is gone sees all that the side did", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  own_stream const stream;
  tessera::cuda const exec{.stream = stream.handle};
  buffer<int> value(exec, 1);
  exec.clear(value);
  {
    side_queue<tessera::cuda> const side(exec, 0);
    side.follow();
    side.executor().run(slow_step{value, 0, 6, 1000}, 1);
  }
  exec.run(slow_step{value, 7, 0, 0}, 1);
  CHECK(downloaded(exec, value) == 42);
}

TEST_CASE("a side queue can be on a stream of the caller's, which it leaves alone", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  own_stream const stream;
  own_stream const other;
  tessera::cuda const exec{.stream = stream.handle};
  buffer<int> value(exec, 1);
  exec.clear(value);
  {
    side_queue<tessera::cuda> const side(exec, other.handle, 1);
    CHECK(side.executor().stream == other.handle);
    CHECK(side.executor().status() == exec.status());
    exec.run(slow_step{value, 3, 1, 300}, 1);
    side.follow();
    side.executor().run(slow_step{value, 5, 2, 300}, 1);
    side.mark(0);
    side.join(0);
    exec.run(slow_step{value, 7, 3, 0}, 1);
  }
  CHECK(downloaded(exec, value) == 7 * (5 * 1 + 2) + 3);
  CHECK(cudaStreamQuery(other.handle) == cudaSuccess);
  CHECK_THROWS_AS(side_queue<tessera::cuda>(exec, exec.stream, 1), value_error);
  CHECK_THROWS_AS(side_queue<tessera::cuda>(exec, other.handle, -1), value_error);
}
