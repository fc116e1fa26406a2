// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loopback`: the Communicator of a process that has one rank, on any executor that copies lists.
///
///     tessera::loopback ranks;
///     ranks.all_reduce(exec, losses, tessera::rank_reduction::sum, losses);   // leaves them as they are
///
/// What runs on several ranks runs on one with it. Collectives copy the source to the target by the executor's copy, or
/// do nothing where both are one list; a reduced NaN keeps its bits. Nothing is allocated but in grouped(). Calls may
/// be captured in CUDA graphs, and wait for nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/detail/rank_elements.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

class loopback {
 public:
  /// Sums of one number have one order.
  static constexpr bool reduces_in_rank_order = true;

  /// 0, the only rank.
  [[nodiscard]] int rank() const { return 0; }
  /// 1.
  [[nodiscard]] int size() const { return 1; }

  /// Copies the source to the target of the same size: sums, maxima and minima of one rank.
  template <Executor Exec, class T>
  void all_reduce(Exec const& exec, array_view<std::type_identity_t<T> const> source, rank_reduction reduction,
                  array_view<T> target) {
    static_assert(detail::is_reduced_by_ranks<T>, "tessera: ranks reduce no elements of this type");
    detail::check_reduction("loopback.all_reduce", reduction);
    detail::check_same_size("loopback.all_reduce", source, target);
    copy("loopback.all_reduce", exec, source, target);
  }

  /// Copies the source to the target of the same size: the list of the one rank.
  template <Executor Exec, class T>
  void all_gather(Exec const& exec, array_view<std::type_identity_t<T> const> source, array_view<T> target) {
    detail::check_parts("loopback.all_gather", source, "source", target, 1);
    copy("loopback.all_gather", exec, source, target);
  }

  /// Copies the source to the target of the same size: the one part.
  template <Executor Exec, class T>
  void reduce_scatter(Exec const& exec, array_view<std::type_identity_t<T> const> source, rank_reduction reduction,
                      array_view<T> target) {
    static_assert(detail::is_reduced_by_ranks<T>, "tessera: ranks reduce no elements of this type");
    detail::check_reduction("loopback.reduce_scatter", reduction);
    detail::check_parts("loopback.reduce_scatter", target, "target", source, 1);
    copy("loopback.reduce_scatter", exec, source, target);
  }

  /// The memory itself, which is that of all ranks.
  template <Executor Exec>
  [[nodiscard]] std::vector<std::byte*> share(Exec const& exec, array_view<std::byte> own) const {
    detail::check_communicated("loopback.share", "memory", own, detail::options_of(exec).is_dry);
    return {own.data};
  }
  /// Does nothing: an executor reads what it stored.
  template <Executor Exec>
  void meet(Exec const&) const {}

  /// In grouped(): sends to itself, rank 0; the receive that stands in the same place among receives copies the list.
  template <Executor Exec, class T>
  void send(Exec const& exec, array_view<T> source, int to) {
    detail::check_peer("loopback.send", to, 0, 1, depth_ > 0);
    detail::check_communicated("loopback.send", "source", source, detail::options_of(exec).is_dry);
    sends_.push_back({detail::bytes_of(source), source.size(), detail::element_name<T>()});
  }

  /// In grouped(): receives from itself, rank 0, on this executor's stream when the group ends.
  template <Executor Exec, class T>
  void receive(Exec const& exec, int from, array_view<T> target) {
    static_assert(!std::is_const_v<T>, "tessera: a list that is received is written");
    detail::check_peer("loopback.receive", from, 0, 1, depth_ > 0);
    detail::check_communicated("loopback.receive", "target", target, detail::options_of(exec).is_dry);
    auto const bytes = detail::writable_bytes_of(target);
    receives_.push_back({{bytes, target.size(), detail::element_name<T>()},
                         [exec, bytes](array_view<std::byte const> sent) { copy_bytes(exec, sent, bytes); }});
  }

  /// Calls the function, then does what it sent and received. Throws shape_error where a send has no receive, or one of
  /// another size or type; then, and where the function throws, nothing is copied.
  template <class Function>
  void grouped(Function&& function) {
    ++depth_;
    try {
      std::forward<Function>(function)();
    } catch (...) {
      --depth_;
      clear();
      throw;
    }
    if (--depth_ == 0) {
      finish();
    }
  }

 private:
  struct message {
    array_view<std::byte const> bytes;
    std::int64_t count;
    std::string_view element;
  };
  struct receipt {
    message into;
    std::function<void(array_view<std::byte const>)> take;
  };

  template <class Exec, class T>
  static void copy(char const* function, Exec const& exec, array_view<T const> source, array_view<T> target) {
    bool const is_dry = detail::options_of(exec).is_dry;
    detail::check_communicated(function, "source", source, is_dry);
    detail::check_communicated(function, "target", target, is_dry);
    copy_bytes(exec, detail::bytes_of(source), detail::writable_bytes_of(target));
  }
  template <class Exec>
  static void copy_bytes(Exec const& exec, array_view<std::byte const> source, array_view<std::byte> target) {
    if (source.data != target.data) {
      exec.copy(source, target);
    }
  }

  void clear() {
    sends_.clear();
    receives_.clear();
  }

  void finish() {
    auto const sends = std::exchange(sends_, {});
    auto const receives = std::exchange(receives_, {});
    check<shape_error>(sends.size() == receives.size(), "loopback.grouped: rank 0 sends ", sends.size(),
                       " lists to itself but receives ", receives.size());
    for (std::size_t i = 0; i < sends.size(); ++i) {
      check_match(sends[i], receives[i].into);
    }
    for (std::size_t i = 0; i < sends.size(); ++i) {
      receives[i].take(sends[i].bytes);
    }
  }
  static void check_match(message const& sent, message const& into) {
    bool const is_same = sent.count == into.count && sent.bytes.size() == into.bytes.size();
    check<shape_error>(is_same && sent.element == into.element, "loopback.receive: rank 0 sends ", sent.count,
                       " elements of ", sent.element.data(), " (", sent.bytes.size(), " bytes) but receives ",
                       into.count, " of ", into.element.data(), " (", into.bytes.size(), " bytes)");
  }

  int depth_ = 0;
  std::vector<message> sends_;
  std::vector<receipt> receives_;
};

}  // namespace v0
}  // namespace tessera
