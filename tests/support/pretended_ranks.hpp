// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Communicators for tests of collectives on one device: `mirrored_ranks`, one rank of several that all have the same
/// lists, `mirrored_peers`, one of two that also share memory, and `taped_rank`, one end of a wire that keeps what was
/// sent until the other end runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/detail/rank_elements.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera_test {

/// Damage to what another rank sent, enqueued on an executor: damage(exec, message, bytes). Messages count from 0.
template <class Exec>
using enqueued_damage = std::function<void(Exec const&, int, tessera::array_view<std::byte>)>;

/// A rank of several: what it gathers are copies of its own list, and what it receives from another one is what it sent
/// there.
template <class Exec>
class mirrored_ranks {
 public:
  static constexpr bool reduces_in_rank_order = true;

  mirrored_ranks(int rank, int size, enqueued_damage<Exec> damage = {})
      : rank_(rank), size_(size), damage_(std::move(damage)) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  template <class T>
  void all_reduce(Exec const&, tessera::array_view<std::type_identity_t<T> const>, tessera::rank_reduction,
                  tessera::array_view<T>) {
    throw std::runtime_error("mirrored_ranks reduces nothing");
  }
  template <class T>
  void reduce_scatter(Exec const&, tessera::array_view<std::type_identity_t<T> const>, tessera::rank_reduction,
                      tessera::array_view<T>) {
    throw std::runtime_error("mirrored_ranks reduces nothing");
  }
  template <class T>
  void all_gather(Exec const& exec, tessera::array_view<std::type_identity_t<T> const> source,
                  tessera::array_view<T> target) {
    tessera::detail::check_parts("mirrored_ranks.all_gather", source, "source", target, size_);
    for (int other = 0; other < size_; ++other) {
      auto const part = target.slice(0, other * source.size(), source.size());
      if (part.data != source.data) {
        exec.copy(source, part);
      }
      if (other != rank_) {
        spoil(exec, tessera::detail::writable_bytes_of(part));
      }
    }
    ++messages_;
  }
  template <class T>
  void send(Exec const&, tessera::array_view<T> source, int to) {
    sends_.push_back({to, tessera::detail::bytes_of(source)});
  }
  template <class T>
  void receive(Exec const& exec, int from, tessera::array_view<T> target) {
    receives_.push_back({exec, from, tessera::detail::writable_bytes_of(target)});
  }
  template <class Function>
  void grouped(Function&& function) {
    std::forward<Function>(function)();
    auto sends = std::exchange(sends_, {});
    auto const receives = std::exchange(receives_, {});
    for (receiving const& one : receives) {
      auto sent = sends.begin();
      while (sent != sends.end() && sent->first != one.from) {
        ++sent;
      }
      if (sent == sends.end()) {
        throw std::runtime_error("mirrored_ranks: nothing was sent");
      }
      one.exec.copy(sent->second, one.into);
      spoil(one.exec, one.into);
      sends.erase(sent);
    }
    messages_ += receives.empty() ? 0 : 1;
  }

 private:
  struct receiving {
    Exec exec;
    int from;
    tessera::array_view<std::byte> into;
  };
  void spoil(Exec const& exec, tessera::array_view<std::byte> bytes) const {
    if (damage_) {
      damage_(exec, messages_, bytes);
    }
  }

  int rank_;
  int size_;
  enqueued_damage<Exec> damage_;
  int messages_ = 0;
  std::vector<std::pair<int, tessera::array_view<std::byte const>>> sends_;
  std::vector<receiving> receives_;
};

/// A rank of two whose memory is the other one's as well: what it stores there is what the other one stores here.
template <class Exec>
class mirrored_peers : public mirrored_ranks<Exec> {
 public:
  explicit mirrored_peers(int rank, enqueued_damage<Exec> damage = {})
      : mirrored_ranks<Exec>(rank, 2), damage_(std::move(damage)) {}

  std::vector<std::byte*> share(Exec const&, tessera::array_view<std::byte> own) {
    shared_ = own;
    return {own.data, own.data};
  }
  void meet(Exec const& exec) {
    if (damage_) {
      damage_(exec, meetings_, shared_);
    }
    ++meetings_;
  }

 private:
  enqueued_damage<Exec> damage_;
  tessera::array_view<std::byte> shared_;
  int meetings_ = 0;
};

/// What rank 0 of two sent.
template <class Exec>
using message_tape = std::deque<std::unique_ptr<tessera::buffer<std::byte>>>;

/// Rank 0 of two, which writes a tape, or rank 1, which reads it. Between the two the executor must have been waited
/// for.
template <class Exec>
class taped_rank {
 public:
  static constexpr bool reduces_in_rank_order = true;

  taped_rank(int rank, message_tape<Exec>& tape, enqueued_damage<Exec> damage = {})
      : rank_(rank), tape_(tape), damage_(std::move(damage)) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return 2; }

  template <class T>
  void all_reduce(Exec const&, tessera::array_view<std::type_identity_t<T> const>, tessera::rank_reduction,
                  tessera::array_view<T>) {
    throw std::runtime_error("taped_rank has no collectives");
  }
  template <class T>
  void reduce_scatter(Exec const&, tessera::array_view<std::type_identity_t<T> const>, tessera::rank_reduction,
                      tessera::array_view<T>) {
    throw std::runtime_error("taped_rank has no collectives");
  }
  template <class T>
  void all_gather(Exec const&, tessera::array_view<std::type_identity_t<T> const>, tessera::array_view<T>) {
    throw std::runtime_error("taped_rank has no collectives");
  }
  template <class T>
  void send(Exec const& exec, tessera::array_view<T> source, int) {
    auto const bytes = tessera::detail::bytes_of(source);
    tape_.push_back(std::make_unique<tessera::buffer<std::byte>>(exec, bytes.size()));
    exec.copy(bytes, *tape_.back());
  }
  template <class T>
  void receive(Exec const& exec, int, tessera::array_view<T> target) {
    auto const bytes = tessera::detail::writable_bytes_of(target);
    if (tape_.empty()) {
      throw std::runtime_error("taped_rank: nothing was sent");
    }
    exec.copy(*tape_.front(), bytes);  // which throws for another size
    if (damage_) {
      damage_(exec, messages_, bytes);
    }
    ++messages_;
    read_.push_back(std::move(tape_.front()));
    tape_.pop_front();
  }
  template <class Function>
  void grouped(Function&& function) {
    std::forward<Function>(function)();
  }

 private:
  int rank_;
  message_tape<Exec>& tape_;
  enqueued_damage<Exec> damage_;
  int messages_ = 0;
  std::vector<std::unique_ptr<tessera::buffer<std::byte>>> read_;  ///< kept until the stream has copied them
};

}  // namespace tessera_test
