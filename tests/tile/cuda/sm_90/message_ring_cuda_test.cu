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
  if (tessera_test::compute_capability_major() < 9) {
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
