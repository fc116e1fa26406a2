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

/// Every collective at once: what it writes depends on each of them.
template <int Lanes>
struct collectives {
  static constexpr int lanes = Lanes;
  struct scratch_type {
    std::int32_t reversed[Lanes];
  };
  array_view<float const> values;
  array_view<float> floats;
  array_view<std::int64_t> integers;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    per_lane<float, Group> mine;
    per_lane<std::int32_t, Group> scaled;
    per_lane<bool, Group> positive;
    for (int lane : group) {
      mine[lane] = values[which * lanes + lane];
      scaled[lane] = static_cast<std::int32_t>(mine[lane] * 1000.0f);
      positive[lane] = mine[lane] > 0.0f;
      scratch.reversed[lanes - 1 - lane] = scaled[lane];
    }
    group.sync();
    float const float_sum = sum(group, mine);
    float const float_extent = maximum(group, mine) - minimum(group, mine);
    float const third = broadcast(group, mine, 3);
    std::int64_t const integer_sum = sum(group, scaled);
    std::int64_t const integer_extent = static_cast<std::int64_t>(maximum(group, scaled)) - minimum(group, scaled);
    std::int64_t bits = (any(group, positive) ? 2 : 0) + (all(group, positive) ? 1 : 0);
    if constexpr (Lanes == 32) {
      bits = bits * 1000 + count_below(group, ballot(group, positive), 17);
    }
    std::int64_t const total = exclusive_sum(group, scaled);
    for (int lane : group) {
      floats[which * lanes + lane] = lane % 3 == 0 ? float_sum : lane % 3 == 1 ? float_extent : third;
      integers[which * lanes + lane] =
          scaled[lane] + 3 * scratch.reversed[lane] + 7 * integer_sum + 11 * integer_extent + 13 * bits + 17 * total;
    }
  }
};

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

template <int Lanes>
void compare_collectives() {
  constexpr std::int64_t tiles = 301;
  std::vector<float> values(static_cast<std::size_t>(tiles * Lanes));
  std::uint32_t state = 1;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  std::vector<float> floats(values.size());
  std::vector<std::int64_t> integers(values.size());
  cpu{.threads = 2}.run(collectives<Lanes>{values, floats, integers}, tiles);

  cuda const exec;
  buffer<float> const device_values = [&] {
    buffer<float> copy(exec, static_cast<std::int64_t>(values.size()));
    exec.copy(values, copy);
    return copy;
  }();
  buffer<float> device_floats(exec, device_values.size());
  buffer<std::int64_t> device_integers(exec, device_values.size());
  exec.run(collectives<Lanes>{device_values, device_floats, device_integers}, tiles);
  std::vector<float> found_floats(values.size());
  std::vector<std::int64_t> found_integers(values.size());
  exec.copy(device_floats, found_floats);
  exec.copy(device_integers, found_integers);
  exec.wait();
  CHECK(found_floats == floats);
  CHECK(found_integers == integers);
}

}  // namespace

TEST_CASE("collectives of a warp agree with the serial ones to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  compare_collectives<32>();
}

TEST_CASE("collectives of a block agree with the serial ones to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  compare_collectives<64>();
  compare_collectives<256>();
  compare_collectives<1024>();
}

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
