// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Where the ranks of `threads` meet: barriers that compare what the ranks ask for, and messages from one to another.
/// Who waits is told when a rank leaves, refuses a call, or when all of them wait for each other; a std::barrier could
/// tell nobody.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/check.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What a rank asks of a collective. Ranks must agree in all but the source and the refusal.
struct rank_request {
  std::string_view function;
  std::string_view element;
  std::int64_t count = 0;
  int reduction = -1;
  void const* source = nullptr;
  std::size_t scratch_bytes = 0;
  std::string refusal = {};  ///< why the rank itself refuses the call
};

/// A list on its way, which stays with the sender until it is done.
struct rank_message {
  std::string_view element;
  std::int64_t count;
  std::int64_t bytes;
  void const* data;
  bool is_taken = false;
  bool is_done = false;
  std::string refusal = {};
};
using rank_message_pointer = std::shared_ptr<rank_message>;

/// What came for one of several receives, or why nothing comes.
struct rank_arrival {
  std::size_t which = 0;
  rank_message_pointer message = nullptr;
  std::string why_not = {};
};

class rank_meeting {
 public:
  explicit rank_meeting(int ranks)
      : ranks_(static_cast<std::size_t>(ranks)),
        requests_(ranks_),
        waits_(ranks_),
        refusals_(ranks_),
        queues_(ranks_ * ranks_) {}

  [[nodiscard]] int size() const { return static_cast<int>(ranks_); }
  /// Memory that all ranks reach between the two meetings of a collective.
  [[nodiscard]] std::byte* scratch() { return scratch_.data(); }
  /// The sources of all ranks, between the two meetings of a collective.
  [[nodiscard]] std::vector<void const*> const& sources() const { return sources_; }

  /// How often all ranks waited for each other. What began in another round is dropped.
  [[nodiscard]] std::uint64_t round() {
    std::unique_lock const lock(mutex_);
    return round_;
  }

  /// Waits for all ranks, after which none of them is out of step. Throws in all of them where requests differ, or a
  /// rank refuses its own or leaves first.
  void meet(int rank, rank_request request) {
    std::unique_lock lock(mutex_);
    std::string const function(request.function);
    requests_[index(rank)] = std::move(request);
    std::uint64_t const meeting = meetings_;
    if (++arrived_ == ranks_) {
      finish_meeting();
    } else {
      wait_for_change(lock, rank, {.kind = awaited::meeting, .round = round_, .meeting = meeting});
      if (meetings_ == meeting) {
        std::string const why = why_no_meeting(function, rank);
        arrived_ -= waits_[index(rank)].round == round_ ? 1 : 0;
        throw error(why);
      }
    }
    check<error>(!is_refused_, function, ": ", verdict_);
    check<shape_error>(verdict_.empty(), function, ": ", verdict_);
  }

  /// Puts a message into the queue; never waits. One of a rank that is out of step goes to nobody.
  void post(int from, int to, rank_message_pointer const& message, std::uint64_t round) {
    std::unique_lock const lock(mutex_);
    if (round == round_ && !is_out(from)) {
      queue(from, to).push_back(message);
      changed_.notify_all();
    }
  }

  /// Waits until there is a message for one of the receives from these ranks, or can be none. Whoever takes a message
  /// calls finish().
  rank_arrival take(int to, std::vector<int> const& from, std::uint64_t round) {
    std::unique_lock lock(mutex_);
    wait_for_change(lock, to, {.kind = awaited::message, .round = round, .peers = &from});
    for (std::size_t i = 0; i < from.size() && round == round_; ++i) {
      if (auto& messages = queue(from[i], to); !messages.empty() && !is_out(to)) {
        rank_arrival came{.which = i, .message = messages.front()};
        messages.pop_front();
        came.message->is_taken = true;
        return came;
      }
    }
    std::size_t which = 0;
    while (round == round_ && !is_out(to) && !is_out(from[which])) {
      ++which;
    }
    return {.which = which, .why_not = why_not("threads.receive", to, from[which], round)};
  }

  /// Tells the sender that its list was copied, or why not.
  void finish(rank_message& message, std::string const& refusal) {
    std::unique_lock const lock(mutex_);
    message.refusal = refusal;
    message.is_done = true;
    changed_.notify_all();
  }

  /// Waits until a message is received. Takes it back and throws where that cannot be.
  void wait_until_done(int from, int to, rank_message_pointer const& message, std::uint64_t round) {
    std::unique_lock lock(mutex_);
    std::vector<int> const peers{to};
    wait_for_change(lock, from, {.kind = awaited::receipt, .round = round, .peers = &peers, .message = message.get()});
    if (!message->is_done) {
      std::erase(queue(from, to), message);
      throw error(why_not("threads.send", from, to, round));
    }
    check<shape_error>(message->refusal.empty(), "threads.send: ", message->refusal);
  }

  /// A rank refused a call, and nobody knows any more which of its calls belongs to which of the others: it is out of
  /// step until all ranks meet, and who exchanges with it learns why.
  void refuse(int rank, std::string const& why) {
    std::unique_lock const lock(mutex_);
    if (refusals_[index(rank)].empty()) {
      refusals_[index(rank)] = why.empty() ? "it does not say why" : why;
      changed_.notify_all();
    }
  }

  /// A rank's handle is gone: who waits for it learns so.
  void leave(int rank) {
    std::unique_lock const lock(mutex_);
    waits_[index(rank)].kind = awaited::left;
    find_deadlock();
    changed_.notify_all();
  }

 private:
  enum class awaited : std::uint8_t { nothing, meeting, message, receipt, left };
  struct wait {
    awaited kind = awaited::nothing;
    std::uint64_t round = 0;
    std::uint64_t meeting = 0;  ///< how many there had been
    std::vector<int> const* peers = nullptr;
    rank_message const* message = nullptr;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::deque<rank_message_pointer>& queue(int from, int to) { return queues_[index(from) * ranks_ + index(to)]; }
  [[nodiscard]] bool has_left(int rank) const { return waits_[index(rank)].kind == awaited::left; }
  /// Whether no message from or to a rank can be exchanged: it has left, or is out of step.
  [[nodiscard]] bool is_out(int rank) const { return has_left(rank) || !refusals_[index(rank)].empty(); }

  /// The first rank that has left; as many as there are if none has.
  [[nodiscard]] int first_left() const {
    int rank = 0;
    while (rank < size() && !has_left(rank)) {
      ++rank;
    }
    return rank;
  }

  /// Whether what a rank waits for is there, or cannot come.
  bool is_over(int rank) {
    wait const& of = waits_[index(rank)];
    switch (of.kind) {
      case awaited::meeting:
        return of.round != round_ || meetings_ != of.meeting || first_left() < size();
      case awaited::message:
        for (int peer : *of.peers) {
          if (is_out(peer) || !queue(peer, rank).empty()) {
            return true;
          }
        }
        return of.round != round_ || is_out(rank);
      case awaited::receipt:
        return of.message->is_done ||
               (!of.message->is_taken && (of.round != round_ || is_out(of.peers->front()) || is_out(rank)));
      default:
        return true;
    }
  }

  /// Waits until what the rank waits for is there, or cannot come.
  void wait_for_change(std::unique_lock<std::mutex>& lock, int rank, wait const& what) {
    wait& of = waits_[index(rank)];
    of = what;
    find_deadlock();
    changed_.wait(lock, [&, this] { return is_over(rank); });
    of.kind = awaited::nothing;
  }

  /// Where every rank waits for what none of them gives: says so to all, and begins anew.
  void find_deadlock() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      auto const kind = waits_[rank].kind;
      if (kind != awaited::left && (kind == awaited::nothing || is_over(static_cast<int>(rank)))) {
        return;
      }
    }
    deadlock_.clear();
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      deadlock_ += join(rank == 0 ? "rank " : ", rank ", rank, what_of(rank));
    }
    for (auto& messages : queues_) {
      messages.clear();
    }
    refusals_.assign(ranks_, {});
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  }

  /// What a rank waits for, in words.
  [[nodiscard]] std::string what_of(std::size_t rank) const {
    wait const& of = waits_[rank];
    if (of.kind == awaited::left) {
      return " has left";
    } else if (of.kind == awaited::meeting) {
      return join(" is in ", std::string(requests_[rank].function));
    }
    std::string peers;
    for (int other = 0; other < size(); ++other) {
      if (std::find(of.peers->begin(), of.peers->end(), other) != of.peers->end()) {
        peers += join(peers.empty() ? " " : " or ", other);
      }
    }
    return (of.kind == awaited::message ? " receives from" : " sends to") + peers;
  }

  /// Why a rank's message to or from another does not come.
  [[nodiscard]] std::string why_not(char const* function, int rank, int peer, std::uint64_t round) const {
    if (round != round_) {
      return join(function, ": all ranks wait for each other: ", deadlock_);
    } else if (std::string const& own = refusals_[index(rank)]; !own.empty()) {
      return join(function, ": rank ", rank, " exchanges with none before all ranks meet in a collective, since it ",
                  "refused a call: ", own);
    }
    return join(function, ": rank ", rank, " waits for rank ", peer, why_out(peer));
  }
  /// Why a rank gives nothing: what it refused, or that it has left.
  [[nodiscard]] std::string why_out(int rank) const {
    std::string const& refused = refusals_[index(rank)];
    std::string const left = has_left(rank) ? join(", which has left the ", size(), " ranks") : "";
    return refused.empty() ? left : left + (left.empty() ? ", which" : " and") + " refused a call: " + refused;
  }
  [[nodiscard]] std::string why_no_meeting(std::string const& function, int rank) const {
    if (waits_[index(rank)].round != round_) {
      return join(function, ": all ranks wait for each other: ", deadlock_);
    }
    return join(function, ": rank ", rank, " waits for rank ", first_left(), why_out(first_left()));
  }

  /// All ranks are there: compares what they ask for and lets them go.
  void finish_meeting() {
    verdict_.clear();
    is_refused_ = false;
    for (std::size_t rank = 0; rank < ranks_ && !is_refused_; ++rank) {
      if (!requests_[rank].refusal.empty()) {
        is_refused_ = true;
        verdict_ = join("rank ", rank, " refused the call: ", requests_[rank].refusal);
      }
    }
    for (std::size_t rank = 1; rank < ranks_ && verdict_.empty(); ++rank) {
      verdict_ = compare(rank, requests_[0], requests_[rank]);
    }
    if (verdict_.empty()) {
      verdict_ = prepare(requests_[0].scratch_bytes);
    }
    refusals_.assign(ranks_, {});
    arrived_ = 0;
    ++meetings_;
    changed_.notify_all();
  }

  /// In what a rank's request differs from rank 0's, in words; else empty.
  static std::string compare(std::size_t rank, rank_request const& first, rank_request const& other) {
    if (other.function != first.function) {
      return join("rank 0 calls ", std::string(first.function), " but rank ", rank, " calls ",
                  std::string(other.function));
    } else if (other.element != first.element) {
      return join("rank 0 gives elements of ", std::string(first.element), " but rank ", rank, " of ",
                  std::string(other.element));
    } else if (other.count != first.count || other.scratch_bytes != first.scratch_bytes) {
      if (first.scratch_bytes == 0 && other.scratch_bytes == 0) {  // nothing is copied
        return join("rank 0 gives ", first.count, " elements but rank ", rank, " gives ", other.count);
      }
      return join("rank 0 gives ", first.count, " elements (", first.scratch_bytes, " bytes in all) but rank ", rank,
                  " gives ", other.count, " (", other.scratch_bytes, ")");
    } else if (other.reduction != first.reduction) {
      return join("rank 0 asks for reduction ", first.reduction, " but rank ", rank, " for ", other.reduction);
    }
    return {};
  }

  /// Makes memory and sources ready; why that cannot be, else empty.
  std::string prepare(std::size_t bytes) {
    try {
      if (bytes > scratch_.size()) {
        scratch_.resize(bytes);
      }
      sources_.clear();
      for (rank_request const& request : requests_) {
        sources_.push_back(request.source);
      }
      return {};
    } catch (std::exception const&) {
      return join("there is no memory for ", bytes, " bytes");
    }
  }

  std::size_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<rank_request> requests_;
  std::vector<wait> waits_;
  std::vector<std::string> refusals_;  ///< of ranks that are out of step
  std::vector<std::deque<rank_message_pointer>> queues_;
  std::vector<std::byte> scratch_;
  std::vector<void const*> sources_;
  std::string verdict_;
  std::string deadlock_;
  bool is_refused_ = false;
  std::size_t arrived_ = 0;
  std::uint64_t meetings_ = 0;
  std::uint64_t round_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
