// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs of compressed collectives on ranks in threads: workspaces with guarded ends, and a Communicator that damages
/// what a rank receives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/weights/compressed_collective_types.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/testing/on_ranks.hpp>
#include <tessera/view/array_view.hpp>

#include "algorithm/weights/weight_samples.hpp"

namespace tessera_test {

/// Options with which some ten thousand weights have a head and several chunks.
inline tessera::compressed_collective_options small_messages() {
  tessera::compressed_collective_options options;
  options.head_bytes = std::int64_t{1} << 15;
  options.chunk_bytes = 1;
  options.longest_bytes = 1;
  options.smallest_bytes = 0;
  return options;
}

/// The same, where ranks store into each other's memory.
inline tessera::compressed_collective_options small_stores() {
  auto options = small_messages();
  options.stores_to_peers = true;
  return options;
}

/// The share of a list's bytes that a rank sent.
inline double sent_share(tessera::compressed_traffic const& traffic) {
  return static_cast<double>(traffic.sent) / static_cast<double>(traffic.weights);
}

/// A block for a workspace, at a multiple of 256 bytes and filled with rubbish, whose ends must stay as they are.
class guarded_block {
 public:
  explicit guarded_block(std::int64_t bytes) : bytes_(bytes), memory_(static_cast<std::size_t>(bytes) + 768, rubbish) {
    auto const address = reinterpret_cast<std::uintptr_t>(memory_.data());
    first_ = 256 + (256 - static_cast<std::int64_t>(address % 256)) % 256;
  }
  [[nodiscard]] tessera::array_view<std::byte> view() { return {memory_.data() + first_, bytes_}; }
  [[nodiscard]] bool is_sound() const {
    auto const is_rubbish = [](std::byte value) { return value == rubbish; };
    return std::all_of(memory_.begin(), memory_.begin() + first_, is_rubbish) &&
           std::all_of(memory_.begin() + first_ + bytes_, memory_.end(), is_rubbish);
  }

 private:
  static constexpr std::byte rubbish{0xcd};
  std::int64_t bytes_;
  std::vector<std::byte> memory_;
  std::int64_t first_;
};

/// A rank of `threads` that changes the bytes which it receives: damage(message, from, bytes) is called for each list
/// of bytes that another rank sent, where messages are counted from 0 and a collective is one message.
class damaging_ranks {
 public:
  using damage_type = std::function<void(int message, int from, tessera::array_view<std::byte> bytes)>;
  static constexpr bool reduces_in_rank_order = true;

  damaging_ranks(tessera::threads& ranks, damage_type damage) : ranks_(ranks), damage_(std::move(damage)) {}

  [[nodiscard]] int rank() const { return ranks_.rank(); }
  [[nodiscard]] int size() const { return ranks_.size(); }

  template <tessera::Executor Exec, class T>
  void all_reduce(Exec const& exec, tessera::array_view<std::type_identity_t<T> const> source,
                  tessera::rank_reduction reduction, tessera::array_view<T> target) {
    ranks_.all_reduce(exec, source, reduction, target);
  }
  template <tessera::Executor Exec, class T>
  void reduce_scatter(Exec const& exec, tessera::array_view<std::type_identity_t<T> const> source,
                      tessera::rank_reduction reduction, tessera::array_view<T> target) {
    ranks_.reduce_scatter(exec, source, reduction, target);
  }
  template <tessera::Executor Exec, class T>
  void all_gather(Exec const& exec, tessera::array_view<std::type_identity_t<T> const> source,
                  tessera::array_view<T> target) {
    ranks_.all_gather(exec, source, target);
    if constexpr (std::is_same_v<T, std::byte>) {
      std::int64_t const part = source.size();
      for (int from = 0; from < size(); ++from) {
        if (from != rank()) {
          damage_(messages_, from, target.slice(0, from * part, part));
        }
      }
      ++messages_;
    }
  }
  template <tessera::Executor Exec>
  std::vector<std::byte*> share(Exec const& exec, tessera::array_view<std::byte> own) {
    shared_ = own;
    return ranks_.share(exec, own);
  }
  /// What others stored is one message, of no certain rank, in all of the own memory.
  template <tessera::Executor Exec>
  void meet(Exec const& exec) {
    ranks_.meet(exec);
    damage_(messages_++, -1, shared_);
  }
  template <tessera::Executor Exec, class T>
  void send(Exec const& exec, tessera::array_view<T> source, int to) {
    ranks_.send(exec, source, to);
  }
  template <tessera::Executor Exec, class T>
  void receive(Exec const& exec, int from, tessera::array_view<T> target) {
    ranks_.receive(exec, from, target);
    if constexpr (std::is_same_v<T, std::byte>) {
      received_.push_back({from, target});
    }
  }
  /// What is received in a group is one message for each rank that sends, damaged when the group has ended.
  template <class Function>
  void grouped(Function&& function) {
    ranks_.grouped(std::forward<Function>(function));
    bool const has_any = !received_.empty();
    for (auto const& [from, bytes] : std::exchange(received_, {})) {
      damage_(messages_, from, bytes);
    }
    messages_ += has_any ? 1 : 0;
  }

 private:
  tessera::threads& ranks_;
  damage_type damage_;
  int messages_ = 0;
  tessera::array_view<std::byte> shared_;
  std::vector<std::pair<int, tessera::array_view<std::byte>>> received_;
};

/// Who damages what: a rank, and its damage.
struct damaged_rank {
  int rank = -1;
  damaging_ranks::damage_type damage = [](int, int, tessera::array_view<std::byte>) {};
};

/// Calls run(exec, wire, space) with an executor, its side queue and a workspace of plan(exec); returns whether nothing
/// was written outside of the workspace.
template <class Collective, class Plan, class Run>
bool with_collective_space(Plan const& plan_for, Run const& run) {
  tessera::cpu const exec{.threads = 1};
  tessera::side_queue<tessera::cpu> const wire(exec, Collective::side_marks, true);
  tessera::workspace_plan const plan = plan_for(exec);
  guarded_block block(plan.bytes());
  run(exec, wire, tessera::workspace(plan, block.view()));
  return block.is_sound();
}

/// Weights of a rank, of another kind for each.
template <class T>
weight_array<T> weights_of_rank(int rank, std::uint64_t seed, std::int64_t count) {
  constexpr weight_kind kinds[] = {weight_kind::gauss, weight_kind::gauss,       weight_kind::mixture,
                                   weight_kind::gauss, weight_kind::random_bits, weight_kind::sparse};
  auto const which = (static_cast<std::size_t>(rank) + seed) % std::size(kinds);
  return weight_array<T>(kinds[which], seed + 100 * static_cast<std::uint64_t>(rank), count);
}

}  // namespace tessera_test
