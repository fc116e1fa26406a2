// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/message_ring.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace message_ring_test {  // not anonymous: for old architectures nothing refers to the programs

/// A message of three words.
struct three_words {
  std::int32_t number;
  float value;
  std::uint32_t flags;

  TESSERA_FN static three_words of(std::int32_t number) {
    return {number, static_cast<float>(number) / 4, ~static_cast<std::uint32_t>(number)};
  }
  friend bool operator==(three_words const&, three_words const&) = default;
};
/// A message of one word.
struct one_word {
  std::int32_t number;

  TESSERA_FN static one_word of(std::int32_t number) { return {number * 7 - 3}; }
  friend bool operator==(one_word const&, one_word const&) = default;
};

/// One thread sends numbers, and also writes them into the stages of a ring that it fills. Some receivers are slow.
template <class T, int Stages>
struct pass_messages {
  static constexpr int lanes = 128;
  static constexpr int receivers = 34;  ///< two warps, and the lanes of a third one by themselves
  static constexpr int lanes_of_receivers = 96;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    message_ring<T, Stages> ring;
    stage_ring<Stages> filled;
    shared_message<T> of_stage[Stages];
  };

  int count;
  T* received;  ///< lanes of receivers x messages
  T* beside;    ///< the same of messages beside stages

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.ring.init(receivers);
      scratch.filled.init(1, lanes_of_receivers);
      fence_barrier_init();
    }
    group.sync();
    pipeline_state<Stages> state;
    if (group.lane < lanes_of_receivers) {
      for (int i = 0; i < count; ++i, state.advance()) {
        if ((i + group.lane / 32) % 3 == 0) {
          __nanosleep(500);  // so that others are ahead
        }
        int const to = group.lane * count + i;
        received[to] = group.lane < 64 ? scratch.ring.receive_for_warp(state) : scratch.ring.receive(state);
        scratch.filled.await_full(state);
        beside[to] = scratch.of_stage[state.stage].read();
        scratch.filled.empty[state.stage].arrive();
      }
    } else if (group.lane == lanes_of_receivers) {
      for (int i = 0; i < count; ++i, state.advance()) {
        scratch.ring.send(state, T::of(i));
        shared_barrier& full = scratch.filled.await_empty(state);
        scratch.of_stage[state.stage].write(T::of(count - i));
        full.arrive();
      }
    }
  }
};

/// One thread sends steps to two warps and another thread, and fills a stage of another ring in each.
template <int Stages, int Filled>
struct pass_steps {
  static constexpr int lanes = 128;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    message_ring<std::int32_t, Stages> steps;
    stage_ring<Filled> filled;
    shared_message<std::int32_t> of_stage[Filled];
  };

  int first;               ///< the first step; each has the number of the one before less 3
  int rows;                ///< of `received`
  std::int32_t* received;  ///< 65 lanes x rows: 1 + the number of a step, or -1 where its stage has another value

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.steps.init(3);
      scratch.filled.init(1, 65);
      fence_barrier_init();
    }
    group.sync();
    pipeline_count<Filled> count;
    if (group.lane < 64) {
      for (auto const at : pipelined(late_reader(count), received_by_warp(scratch.steps, count))) {
        take(scratch, at, group.lane, count.steps);
      }
    } else if (group.lane == 64) {
      for (auto const at : pipelined(late_reader(count), received_by_thread(scratch.steps, count))) {
        take(scratch, at, group.lane, count.steps);
      }
    } else if (group.lane == 96) {
      auto const next = [](std::int32_t index) { return index - 3; };
      for (auto const at : pipelined(ring_filler(count), sent_steps(scratch.steps, count, first, next))) {
        shared_barrier& full = at.when_empty(scratch.filled);
        scratch.of_stage[at.stage].write(7 * at.index);
        full.arrive();
      }
    }
  }

 private:
  __device__ void take(scratch_type& scratch, read_step<Filled> const& at, int lane, std::int32_t step) const {
    if ((step + lane / 32) % 3 == 0) {
      __nanosleep(500);  // so that others are ahead
    }
    shared_barrier& empty = at.when_full(scratch.filled);
    std::int32_t const value = scratch.of_stage[at.stage].read();
    empty.arrive();
    received[lane * rows + step] = value == 7 * at.index ? at.index + 1 : -1;
  }
};

template <int Stages, int Filled>
void check_steps(int first) {
  CAPTURE(Stages, Filled, first);
  tessera::cuda const exec;
  int const steps = first < 0 ? 0 : first / 3 + 1;
  int const rows = steps + 1;
  device_values<std::int32_t> const received(std::vector<std::int32_t>(static_cast<std::size_t>(65 * rows)));
  exec.run(pass_steps<Stages, Filled>{first, rows, received.data()}, 1);
  exec.wait();
  std::vector<std::int32_t> expected;
  for (int lane = 0; lane < 65; ++lane) {
    for (int step = 0; step < rows; ++step) {
      expected.push_back(step < steps ? first - 3 * step + 1 : 0);
    }
  }
  CHECK(received.download() == expected);
}

template <class T, int Stages>
void check_messages(int count) {
  CAPTURE(sizeof(T), Stages, count);
  tessera::cuda const exec;
  auto const all = static_cast<std::size_t>(pass_messages<T, Stages>::lanes_of_receivers * count);
  device_values<T> const received(all);
  device_values<T> const beside(all);
  exec.run(pass_messages<T, Stages>{count, received.data(), beside.data()}, 1);
  exec.wait();
  std::vector<T> expected(all);
  std::vector<T> expected_beside(all);
  for (std::size_t i = 0; i < all; ++i) {
    auto const number = static_cast<std::int32_t>(i % static_cast<std::size_t>(count));
    expected[i] = T::of(number);
    expected_beside[i] = T::of(count - number);
  }
  CHECK((received.download() == expected));
  CHECK((beside.download() == expected_beside));
}

}  // namespace message_ring_test

TEST_CASE("all receivers of a ring of messages get each message, in order", "[cuda]") {
  using namespace message_ring_test;
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  for (int const count : {1, 2, 3, 101}) {
    check_messages<one_word, 1>(count);
    check_messages<one_word, 2>(count);
    check_messages<three_words, 3>(count);
    check_messages<three_words, 8>(count);
  }
}

TEST_CASE("steps that are sent run everywhere, with the stages that are filled in them", "[cuda]") {
  using namespace message_ring_test;
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  for (int const first : {-1, 0, 2, 7, 200}) {
    check_steps<1, 1>(first);
    check_steps<2, 1>(first);
    check_steps<2, 2>(first);
    check_steps<3, 5>(first);
  }
}
