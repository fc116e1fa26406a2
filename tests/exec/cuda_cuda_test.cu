// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/workspace.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

struct reports {
  static constexpr int lanes = 32;
  struct scratch_type {};
  status_word* status;
  std::int64_t first_bad;
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    if (which >= first_bad) {
      group.report(status, status_code::bad_checksum, which);
    }
  }
};

/// Counts in scratch that is larger than what a kernel gets without asking.
struct counts_in_large_scratch {
  static constexpr int lanes = 128;
  struct scratch_type {
    std::uint32_t counts[20'000];
  };
  array_view<std::uint32_t> sums;
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    for (int lane : group) {
      for (int i = lane; i < 20'000; i += lanes) {
        scratch.counts[i] = 0;
      }
    }
    group.sync();
    for (int lane : group) {
      for (int i = lane; i < 40'000; i += lanes) {
        group.atomic_add(scratch.counts[i % 7 * 1000 + i % 3], 1u);
      }
    }
    group.sync();
    per_lane<std::uint32_t, Group> mine;
    for (int lane : group) {
      mine[lane] = 0;
      for (int i = lane; i < 20'000; i += lanes) {
        mine[lane] += scratch.counts[i] * static_cast<std::uint32_t>(i);
      }
    }
    std::uint32_t const total = sum(group, mine);
    for (int lane : group) {
      if (is_first(lane)) {
        sums[which] = total + static_cast<std::uint32_t>(which);
      }
    }
  }
};

struct add_one {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<int> values;
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const i = which * lanes + lane;
      if (i < values.size()) {
        values[i] += 1;
      }
    }
  }
};

/// Reads what other blocks of the launch before wrote, and takes its time over the last element.
struct reverse_and_add_one {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<int const> source;
  array_view<int> target;
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const i = which * lanes + lane;
      if (i < target.size()) {
        int const repeats = i + 1 == target.size() ? 500 : 1;
        int value = source[source.size() - 1 - i];
        for (int k = 0; k < repeats; ++k) {
          value += k % 2 == 0 ? 1 : -1;
          target[i] = value;
        }
        target[i] = source[source.size() - 1 - i] + 1;
      }
    }
  }
};

}  // namespace

TEST_CASE("what groups report on the device is thrown by wait, the lowest position first, and only once", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  exec.run(reports{exec.status(), 41}, 100'000);
  try {
    exec.wait();
    FAIL("wait did not throw");
  } catch (corrupt_data const& e) {
    CHECK(e.position() == 41);
    CHECK_THAT(e.what(), tessera_test::contains("cuda.wait: the checksum does not match"));
  }
  CHECK_NOTHROW(exec.wait());
}

TEST_CASE("scratch larger than 48 KiB works", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<std::uint32_t> expected(50);
  cpu{}.run(counts_in_large_scratch{expected}, 50);
  cuda const exec;
  buffer<std::uint32_t> sums(exec, 50);
  exec.run(counts_in_large_scratch{sums}, 50);
  std::vector<std::uint32_t> found(50);
  exec.copy(sums, found);
  exec.wait();
  CHECK(found == expected);
}

TEST_CASE("a run can be captured in a graph and replayed", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cudaStream_t stream = nullptr;
  tessera_test::cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    cuda const exec{.stream = stream};
    buffer<int> values(exec, 1000);
    exec.wait();
    for (int repeat = 0; repeat < 2; ++repeat) {
      tessera_test::cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
      exec.clear(values);
      exec.run(add_one{values}, 32);
      exec.run(add_one{values}, 32);
      exec.run(reports{exec.status(), 9}, 10);
      CHECK_THROWS_AS(exec.wait(), value_error);
      cudaGraph_t graph = nullptr;
      tessera_test::cuda_ok(cudaStreamEndCapture(stream, &graph));
      cudaGraphExec_t replay = nullptr;
      tessera_test::cuda_ok(cudaGraphInstantiate(&replay, graph, 0));
      for (int i = 0; i < 3; ++i) {
        tessera_test::cuda_ok(cudaGraphLaunch(replay, stream));
      }
      CHECK_THROWS_AS(exec.wait(), corrupt_data);
      tessera_test::cuda_ok(cudaGraphExecDestroy(replay));
      tessera_test::cuda_ok(cudaGraphDestroy(graph));
    }
    std::vector<int> found(1000);
    exec.copy(values, found);
    exec.wait();
    CHECK(found == std::vector<int>(1000, 2));
  }
  tessera_test::cuda_ok(cudaStreamDestroy(stream));
}

TEST_CASE("memory of the device is counted to the byte", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_memory pool;
  tracking_memory counted{pool};
  cuda const exec{.memory = counted};
  {
    workspace_plan plan("test");
    auto const counts = plan.add<std::uint32_t>("counts", 100);
    buffer<std::byte> memory(exec, plan.bytes());
    CHECK(workspace(plan, memory)[counts].size() == 100);
    CHECK(counted.current_bytes() == 512);
  }
  exec.wait();
  CHECK(counted.current_bytes() == 0);
  CHECK(counted.peak_bytes() == 512);
  CHECK(pool.peak_bytes() >= 512);
}

TEST_CASE("pinned memory takes part in copies", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  pinned_memory pinned;
  buffer<int> host(64, pinned);
  for (int i = 0; i < 64; ++i) {
    host[i] = i;
  }
  buffer<int> device(exec, 64);
  exec.copy(host, device);
  exec.run(add_one{device}, 2);
  exec.copy(device, host);
  exec.wait();
  CHECK(host[0] == 1);
  CHECK(host[63] == 64);
}

TEST_CASE("a program sees all that the programs before it in the stream wrote", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  // On sm_90 the next kernel is launched while the one before it ends. Small launches overlap the most.
  std::int64_t const size = GENERATE(33, 5'000, 300'003);
  cuda const exec;
  buffer<int> one(exec, size);
  buffer<int> other(exec, size);
  exec.clear(one);
  constexpr int launches = 100;
  for (int i = 0; i < launches; i += 2) {
    exec.run(reverse_and_add_one{one, other}, (size + 31) / 32);
    exec.run(reverse_and_add_one{other, one}, (size + 31) / 32);
  }
  std::vector<int> result(static_cast<std::size_t>(size));
  exec.copy(one, result);
  exec.wait();
  CHECK(result == std::vector<int>(result.size(), launches));
}

TEST_CASE("an executor without a device says which call failed", "[cuda]") {
  if (tessera_test::why_no_gpu().empty()) {
    TESSERA_SKIP("there is a CUDA device");
  }
  try {
    cuda const exec;
    FAIL("an executor was made");
  } catch (device_error const& e) {
    CHECK(e.code() != 0);
    CHECK_THAT(e.what(), tessera_test::contains("cuda"));
  }
}
