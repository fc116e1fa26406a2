// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `message_ring<T, Stages>`: a stage_ring of messages, small values that one thread sends to others of its thread
/// block: numbers of work items, or steps. Both sides have a pipeline_state and count in the same way. It may count
/// stages of another ring as well.
///
///     message_ring<std::int32_t, 2> work;           // in scratch; one thread calls work.init(receivers), then fences
///     // who sends, one thread:
///     work.send(state, next);
///     state.advance();
///     // who receives: a warp, which counts as one receiver, or one thread by receive()
///     std::int32_t const item = work.receive_for_warp(state);
///     state.advance();
///
/// Numbers that are sent until a negative one comes are steps of pipelined loops on both sides (pipelined_ring.cuh):
/// received_by_warp, received_by_thread and sent_steps. One state counts messages, and stages that the steps fill or
/// read:
///
///     // who receives, a warp:
///     for (auto const at : pipelined(late_reader(state), received_by_warp(work, state))) {
///       shared_barrier& empty = at.when_full(queries);     // the stage_ring of what is filled in each step
///       multiply(at.index, at.stage);
///       empty.arrive_for_warp();
///     }
///     // who sends, one thread:
///     for (auto const at : pipelined(ring_filler(state), sent_steps(work, state, first, next))) {
///       load(at.index, at.stage, at.when_empty(queries));
///     }
///
/// `shared_message<T>`: a value that lies beside the data of a stage of any ring: it is written before `full` is
/// arrived at, and read behind await_full().
///
/// Laws: each receiver gets all messages, in the order in which they were sent; a message is overwritten only when all
/// whom init() counts have received it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// A value in shared memory. Reads and writes are volatile: the compiler keeps none of them for later.
template <class T>
struct shared_message {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint32_t) == 0,
                "tessera: a message is copied in words of 4 bytes");

  /// The words of a message.
  struct words_type {
    std::uint32_t of[sizeof(T) / sizeof(std::uint32_t)];  ///< all of it
  };
  words_type words;  ///< the message

  /// Writes it. One thread.
  __device__ __forceinline__ void write(T const& value) {
    auto const from = bit_cast<words_type>(value);
#pragma unroll
    for (std::size_t i = 0; i < sizeof(T) / sizeof(std::uint32_t); ++i) {
      *const_cast<std::uint32_t volatile*>(&words.of[i]) = from.of[i];
    }
  }
  /// Reads it.
  [[nodiscard]] __device__ __forceinline__ T read() const {
    words_type to;
#pragma unroll
    for (std::size_t i = 0; i < sizeof(T) / sizeof(std::uint32_t); ++i) {
      to.of[i] = *const_cast<std::uint32_t const volatile*>(&words.of[i]);
    }
    return bit_cast<T>(to);
  }
};

/// A ring of messages. T: trivially copyable, of a multiple of 4 bytes.
template <class T, int Stages>
struct message_ring {
  static constexpr int stages = Stages;  ///< how many messages may be on their way
  /// Where a side is.
  using state_type = pipeline_state<Stages>;

  stage_ring<Stages> ring;             ///< of messages
  shared_message<T> messages[Stages];  ///< one in each stage

  /// Says how many threads and warps receive each message. One thread, before fence_barrier_init().
  __device__ __forceinline__ void init(int receivers) { ring.init(1, receivers); }
  /// Sends a message, once there is a stage for it. One thread.
  __device__ __forceinline__ void send(state_type const& at, T const& message) {
    shared_barrier& full = ring.await_empty(at);
    messages[at.stage].write(message);
    full.arrive();
  }
  /// Waits for a message. One thread.
  [[nodiscard]] __device__ __forceinline__ T receive(state_type const& at) {
    ring.await_full(at);
    T const message = messages[at.stage].read();
    ring.empty[at.stage].arrive();
    return message;
  }
  /// Waits for a message, which all lanes of a warp get. They call this together.
  [[nodiscard]] __device__ __forceinline__ T receive_for_warp(state_type const& at) {
    using words_type = typename shared_message<T>::words_type;
    ring.await_full(at);
    words_type words{};
    if (thread_index() % 32 == 0) {
      words = bit_cast<words_type>(messages[at.stage].read());
      ring.empty[at.stage].arrive();
    }
#pragma unroll
    for (std::uint32_t& word : words.of) {
      word = uniform(word);
    }
    return bit_cast<T>(words);
  }
};

namespace detail {

/// Where a ring of messages is, for a state of as many stages, or a count.
template <int Stages>
__device__ __forceinline__ pipeline_state<Stages> message_state(pipeline_state<Stages> const& state) {
  return state;
}
template <int Stages, int Others>
__device__ __forceinline__ pipeline_state<Stages> message_state(pipeline_count<Others> const& count) {
  return pipeline_state<Stages>::after(count.steps);
}

}  // namespace detail

/// Steps of a pipelined loop that come as messages, until there comes a negative number. ByWarp: whether all lanes of a
/// warp receive them together; else one thread does. State: of the loop's side, which counts messages, too: a
/// pipeline_state of as many stages, or any pipeline_count.
template <int Stages, bool ByWarp, class State>
class received_steps {
 public:
  static constexpr int by = 1;  ///< stages from a step to the next

  /// Receives from a state on, which the loop's side changes.
  __device__ __forceinline__ received_steps(message_ring<std::int32_t, Stages>& ring, State const& state)
      : ring_(ring), state_(state) {}

  /// Nothing yet.
  __device__ __forceinline__ static int start() { return 0; }
  /// What steps are not below.
  __device__ __forceinline__ static int stop() { return 0; }
  /// Receives a step. Whether it is one. It is received here and nowhere else, so that the code has one place where
  /// warps wait. With two, before the loop and at its end, sage_attention2's program of 128 channels had 558
  /// instructions with 32 spills for a tile, in place of 500 with 4.
  __device__ __forceinline__ bool is_before(int& index, int stop) const {
    auto const at = detail::message_state<Stages>(state_);
    index = ByWarp ? ring_.receive_for_warp(at) : ring_.receive(at);
    return index >= stop;
  }
  /// Nothing yet.
  __device__ __forceinline__ static int after(int) { return 0; }

 private:
  message_ring<std::int32_t, Stages>& ring_;
  State const& state_;
};
/// Steps that a warp receives.
template <int Stages, class State>
[[nodiscard]] __device__ __forceinline__ received_steps<Stages, true, State> received_by_warp(
    message_ring<std::int32_t, Stages>& ring, State const& state) {
  return {ring, state};
}
/// Steps that one thread receives.
template <int Stages, class State>
[[nodiscard]] __device__ __forceinline__ received_steps<Stages, false, State> received_by_thread(
    message_ring<std::int32_t, Stages>& ring, State const& state) {
  return {ring, state};
}

/// Steps of a pipelined loop that one thread makes, and sends before each begins: `first`, and next(step) after a step,
/// until a negative number, which is sent, too. State: as for received_steps.
template <int Stages, class State, class Next>
class sent_steps {
 public:
  static constexpr int by = 1;  ///< stages from a step to the next

  /// Sends from a state on, which the loop's side changes.
  __device__ __forceinline__ sent_steps(message_ring<std::int32_t, Stages>& ring, State const& state,
                                        std::int32_t first, Next const& next)
      : ring_(ring), state_(state), first_(first), next_(next) {}

  /// The first step.
  __device__ __forceinline__ int start() const { return first_; }
  /// What steps are not below.
  __device__ __forceinline__ static int stop() { return 0; }
  /// Sends a step. Whether it is one.
  __device__ __forceinline__ bool is_before(int index, int stop) const {
    ring_.send(detail::message_state<Stages>(state_), index);
    return index >= stop;
  }
  /// The step after another one.
  __device__ __forceinline__ int after(int index) const { return next_(index); }

 private:
  message_ring<std::int32_t, Stages>& ring_;
  State const& state_;
  std::int32_t first_;
  Next next_;
};

}  // namespace v0
}  // namespace tessera
