// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `threads`: the Communicator of several ranks in one process, each a thread of the user's with its own executor on
/// the CPU.
///
///     std::vector<tessera::threads> ranks = tessera::threads::make(4);
///     std::thread worker([&] {                                   // one for each rank
///       tessera::threads own = std::move(ranks[1]);              // leaves the others when it is destroyed
///       own.all_reduce(tessera::cpu{}, sums, tessera::rank_reduction::sum, sums);
///     });
///
/// Every call waits for the ranks that it needs. None waits for ever:
///   * Where ranks disagree in a collective's function, size, type or reduction, or in a list's size or type, those
///     that meet throw shape_error with both values.
///   * Where a rank refuses a collective's arguments it throws why, as it does without others, and these throw
///     tessera::error with the rank and its reason. The next call begins anew.
///   * Where it refuses those of send or receive, or what grouped() calls throws, it is out of step: who exchanges
///     lists with it throws tessera::error with the rank and the reason, as it does itself, until all ranks meet in a
///     collective.
///   * When a rank is destroyed, who waits for it throws tessera::error, as does every later collective. So let a
///     rank end where its thread does.
///   * When all ranks wait for what none of them gives, all throw tessera::error, which says what each waits for.
///
/// Results have the same bits in every run. Collectives need memory for one list of the reduced or gathered size,
/// which the ranks share and keep; each rank reduces one part of the list. A rank's handle is for one thread at a time.
/// With a dry executor arguments are checked and nothing is exchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/detail/rank_elements.hpp>
#include <tessera/comm/detail/rank_meeting.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

class threads {
 public:
  /// Elements are added in the order of the ranks.
  static constexpr bool reduces_in_rank_order = true;

  /// The handles of all ranks, in their order. Throws value_error for less than one rank.
  [[nodiscard]] static std::vector<threads> make(int ranks) {
    check<value_error>(ranks >= 1, "threads.make: there are ", ranks, " ranks but must be 1 or more");
    auto const meeting = std::make_shared<detail::rank_meeting>(ranks);
    std::vector<threads> made;
    made.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      made.push_back(threads(meeting, rank));
    }
    return made;
  }

  /// Takes over the rank of another handle.
  threads(threads&& other) noexcept = default;
  threads(threads const&) = delete;
  threads& operator=(threads const&) = delete;
  threads& operator=(threads&&) = delete;
  /// Leaves the other ranks.
  ~threads() {
    if (meeting_) {
      meeting_->leave(rank_);
    }
  }

  /// This rank's number, from 0.
  [[nodiscard]] int rank() const { return rank_; }
  /// How many ranks there are.
  [[nodiscard]] int size() const { return meeting_->size(); }

  /// Reduces the lists of all ranks, of one size, to every rank's target, which may be its source.
  template <Executor Exec, class T>
  requires(Exec::stream == nullptr) void all_reduce(Exec const& exec, array_view<std::type_identity_t<T> const> source,
                                                    rank_reduction reduction, array_view<T> target) {
    constexpr char const* function = "threads.all_reduce";
    reduce(function, detail::options_of(exec).is_dry, source, reduction, target, 0,
           [&] { detail::check_same_size(function, source, target); });
  }

  /// Puts the lists of all ranks, of one size, behind each other in every rank's target.
  template <Executor Exec, class T>
  requires(Exec::stream == nullptr) void all_gather(Exec const& exec, array_view<std::type_identity_t<T> const> source,
                                                    array_view<T> target) {
    constexpr char const* function = "threads.all_gather";
    detail::rank_request request = request_for(function, source);
    request.scratch_bytes *= static_cast<std::size_t>(size());
    bool const is_dry = detail::options_of(exec).is_dry;
    meet(request, is_dry, [&, this] {
      check_lists(function, source, target, is_dry);
      detail::check_parts(function, source, "source", target, size());
    });
    if (is_dry) {
      return;
    }
    if (source.size() > 0) {
      auto const bytes = static_cast<std::size_t>(source.size()) * sizeof(T);
      std::memcpy(meeting_->scratch() + bytes * static_cast<std::size_t>(rank_), source.data, bytes);
    }
    leave_meeting(function);
    copy(target, 0);
  }

  /// Reduces the lists of all ranks, of one size, and gives each rank its part.
  template <Executor Exec, class T>
  requires(Exec::stream == nullptr) void reduce_scatter(Exec const& exec,
                                                        array_view<std::type_identity_t<T> const> source,
                                                        rank_reduction reduction, array_view<T> target) {
    constexpr char const* function = "threads.reduce_scatter";
    reduce(function, detail::options_of(exec).is_dry, source, reduction, target, target.size() * rank_,
           [&, this] { detail::check_parts(function, target, "target", source, size()); });
  }

  /// Where the memory of each rank is, of one size; all ranks have come to this call.
  template <Executor Exec>
  requires(Exec::stream == nullptr)
      [[nodiscard]] std::vector<std::byte*> share(Exec const& exec, array_view<std::byte> own) {
    constexpr char const* function = "threads.share";
    detail::rank_request request = request_for(function, array_view<std::byte const>(own));
    request.scratch_bytes = 0;
    bool const is_dry = detail::options_of(exec).is_dry;
    meet(request, is_dry, [&] { detail::check_communicated(function, "memory", own, is_dry); });
    std::vector<std::byte*> all(static_cast<std::size_t>(size()), own.data);
    if (!is_dry) {
      for (std::size_t rank = 0; rank < all.size(); ++rank) {  // each rank gave memory that can be written
        all[rank] = static_cast<std::byte*>(const_cast<void*>(meeting_->sources()[rank]));
      }
      leave_meeting(function);
    }
    return all;
  }
  /// Waits until all ranks have come to this call.
  template <Executor Exec>
  requires(Exec::stream == nullptr) void meet(Exec const& exec) {
    if (!detail::options_of(exec).is_dry) {
      leave_meeting("threads.meet");
    }
  }

  /// Sends a list, and waits until it is received; in grouped(), when that ends.
  template <Executor Exec, class T>
  requires(Exec::stream == nullptr) void send(Exec const& exec, array_view<T> source, int to) {
    bool const is_dry = detail::options_of(exec).is_dry;
    check_exchange("threads.send", to, "source", source, is_dry);
    if (!is_dry) {
      auto const bytes = detail::bytes_of(source);
      sends_.push_back({to, std::make_shared<detail::rank_message>(detail::rank_message{
                                detail::element_name<T>(), source.size(), bytes.size(), bytes.data})});
      finish_unless_grouped();
    }
  }

  /// Receives the next list of a rank; in grouped(), when that ends. Where its size or type is another than the
  /// target's, both ranks throw shape_error.
  template <Executor Exec, class T>
  requires(Exec::stream == nullptr) void receive(Exec const& exec, int from, array_view<T> target) {
    static_assert(!std::is_const_v<T>, "tessera: a list that is received is written");
    bool const is_dry = detail::options_of(exec).is_dry;
    check_exchange("threads.receive", from, "target", target, is_dry);
    if (!is_dry) {
      receives_.push_back({from, detail::element_name<T>(), target.size(), detail::writable_bytes_of(target)});
      finish_unless_grouped();
    }
  }

  /// Calls the function, then does what it sent and received. What a function that throws sent and received is dropped,
  /// and the rank is out of step. Of several exchanges that fail, the first one's exception is thrown when all ended.
  template <class Function>
  void grouped(Function&& function) {
    ++depth_;
    try {
      std::forward<Function>(function)();
    } catch (std::exception const& thrown) {
      drop_group(thrown.what());
      throw;
    } catch (...) {
      drop_group("what its grouped() called threw no std::exception");
      throw;
    }
    --depth_;
    finish_unless_grouped();
  }

 private:
  struct sending {
    int to;
    detail::rank_message_pointer message;
  };
  struct receiving {
    int from;
    std::string_view element;
    std::int64_t count;
    array_view<std::byte> bytes;
  };

  threads(std::shared_ptr<detail::rank_meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}

  template <class T>
  static detail::rank_request request_for(std::string_view function, array_view<T const> source) {
    detail::rank_request request;
    request.function = function;
    request.element = detail::element_name<T>();
    request.count = source.size();
    request.source = source.data;
    request.scratch_bytes = static_cast<std::size_t>(source.size()) * sizeof(T);
    return request;
  }

  template <class Source, class Target>
  static void check_lists(char const* function, Source const& source, Target const& target, bool is_dry) {
    detail::check_communicated(function, "source", source, is_dry);
    detail::check_communicated(function, "target", target, is_dry);
  }

  /// Throws for wrong arguments of send and receive, and tells the others so.
  template <class List>
  void check_exchange(char const* function, int peer, char const* what, List const& list, bool is_dry) {
    try {
      detail::check_peer(function, peer, rank_, size(), depth_ > 0);
      detail::check_communicated(function, what, list, is_dry);
    } catch (error const& refused) {
      if (!is_dry) {
        meeting_->refuse(rank_, refused.what());
      }
      throw;
    }
  }

  /// Meets the others also where this rank refuses the call, so that they learn it.
  template <class Check>
  void meet(detail::rank_request& request, bool is_dry, Check const& check_arguments) {
    std::exception_ptr own;
    try {
      check_arguments();
    } catch (error const& refused) {
      own = std::current_exception();
      request.refusal = refused.what();
    }
    try {
      if (!is_dry) {
        meeting_->meet(rank_, request);
      }
    } catch (...) {
      own = own ? own : std::current_exception();
    }
    if (own) {
      std::rethrow_exception(own);
    }
  }

  /// The end of a collective's part, by which all ranks have come as far.
  void leave_meeting(std::string_view function) {
    detail::rank_request request;
    request.function = function;
    meeting_->meet(rank_, request);
  }

  /// Reduces this rank's share of the lists into the memory of all, waits for the others' shares, and copies those from
  /// element `first_copied` on. `check_sizes()` throws for lists that do not fit together.
  template <class T, class Check>
  void reduce(char const* function, bool is_dry, array_view<T const> source, rank_reduction reduction,
              array_view<T> target, std::int64_t first_copied, Check const& check_sizes) {
    static_assert(detail::is_reduced_by_ranks<T>, "tessera: ranks reduce no elements of this type");
    detail::rank_request request = request_for(function, source);
    request.reduction = static_cast<int>(reduction);
    meet(request, is_dry, [&] {
      detail::check_reduction(function, reduction);
      check_lists(function, source, target, is_dry);
      check_sizes();
    });
    if (is_dry) {
      return;
    }
    std::int64_t const share = request.count / size() + (request.count % size() != 0);
    std::int64_t const first = share * rank_ < request.count ? share * rank_ : request.count;
    std::int64_t const last = first + share < request.count ? first + share : request.count;
    if (last > first) {
      detail::reduce_in_rank_order<T>(reduction, meeting_->sources().data(), size(), first, last - first,
                                      meeting_->scratch() + static_cast<std::size_t>(first) * sizeof(T));
    }
    leave_meeting(request.function);
    copy(target, first_copied);
  }

  /// Copies from the memory of all, from element `first` on.
  template <class T>
  void copy(array_view<T> target, std::int64_t first) {
    if (target.size() > 0) {
      std::memcpy(target.data, meeting_->scratch() + static_cast<std::size_t>(first) * sizeof(T),
                  static_cast<std::size_t>(target.size()) * sizeof(T));
    }
  }

  /// What grouped() calls threw: nobody knows what it would have sent.
  void drop_group(char const* why) {
    --depth_;
    sends_.clear();
    receives_.clear();
    meeting_->refuse(rank_, why);
  }

  void finish_unless_grouped() {
    if (depth_ > 0 || (sends_.empty() && receives_.empty())) {
      return;
    }
    auto const sends = std::exchange(sends_, {});
    auto const receives = std::exchange(receives_, {});
    std::uint64_t const round = meeting_->round();
    for (sending const& one : sends) {
      meeting_->post(rank_, one.to, one.message, round);
    }
    std::exception_ptr first = receive_all(receives, round);
    for (sending const& one : sends) {
      try {
        meeting_->wait_until_done(rank_, one.to, one.message, round);
      } catch (...) {
        first = first ? first : std::current_exception();
      }
    }
    if (first) {
      std::rethrow_exception(first);
    }
  }

  /// Receives in the order in which lists come, those of one rank in its order. The first exception, if there is one.
  std::exception_ptr receive_all(std::vector<receiving> left, std::uint64_t round) {
    std::exception_ptr first;
    std::vector<int> from;
    from.reserve(left.size());
    for (receiving const& one : left) {
      from.push_back(one.from);
    }
    while (!left.empty()) {
      detail::rank_arrival const came = meeting_->take(rank_, from, round);
      auto const which = static_cast<std::ptrdiff_t>(came.which);
      receiving const into = left[came.which];
      left.erase(left.begin() + which);
      from.erase(from.begin() + which);
      try {
        check<error>(came.message != nullptr, came.why_not);
        take(*came.message, into);
      } catch (...) {
        first = first ? first : std::current_exception();
      }
    }
    return first;
  }

  void take(detail::rank_message& message, receiving const& into) {
    std::string refusal;
    if (message.count != into.count || message.bytes != into.bytes.size() || message.element != into.element) {
      refusal = join("rank ", into.from, " sends ", message.count, " elements of ", std::string(message.element), " (",
                     message.bytes, " bytes) but rank ", rank_, " receives ", into.count, " of ",
                     std::string(into.element), " (", into.bytes.size(), " bytes)");
    } else if (!into.bytes.is_empty()) {
      std::memmove(into.bytes.data, message.data, static_cast<std::size_t>(into.bytes.size()));
    }
    meeting_->finish(message, refusal);
    check<shape_error>(refusal.empty(), "threads.receive: ", refusal);
  }

  std::shared_ptr<detail::rank_meeting> meeting_;
  int rank_;
  int depth_ = 0;
  std::vector<sending> sends_;
  std::vector<receiving> receives_;
};

}  // namespace v0
}  // namespace tessera
