// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Communicator. Every rank checks them at the same time, with its own executor, whose memory may be a
/// GPU's: `check_communicator_laws(exec, ranks)`.
///
///     tessera::testing::on_ranks(8, [](tessera::threads& ranks) {
///       auto const report = tessera::testing::check_communicator_laws(tessera::cpu{.threads = 1}, ranks);
///       if (!report.is_empty()) { std::puts(report.text().c_str()); }
///     });
///
/// Every rank knows all lists, which are of random numbers with infinities, NaN and zeros of both signs among them, and
/// compares what it gets with a reference of its own. Lists have 0, 1, 7 and 1031 elements a rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/comm/all_to_all.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/testing/laws/comm/detail/rank_lists.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {
namespace detail {

/// One rank's view of the check: its executor, its communicator, and what it found.
template <Executor Exec, Communicator<Exec> Ranks>
class communicator_check {
 public:
  communicator_check(Exec const& exec, Ranks& ranks, std::uint64_t seed)
      : exec_(exec), ranks_(ranks), rank_(ranks.rank()), size_(ranks.size()), seed_(seed) {}

  /// Sums, maxima and minima of lists of `count` elements a rank.
  template <class T>
  void check_reductions(std::int64_t count) {
    for (auto reduction : {rank_reduction::sum, rank_reduction::maximum, rank_reduction::minimum}) {
      check_all_reduce<T>(reduction, count);
      check_reduce_scatter<T>(reduction, count);
    }
  }

  /// Gathers lists of `count` elements of any type, and exchanges such lists.
  template <class T>
  void check_exchanges(std::int64_t count) {
    check_all_gather<T>(count);
    check_pairs<T>(count);
    check_ring<T>(count);
    check_chain<T>(count);
    check_all_to_all<T>(count);
  }

  /// All ranks refuse what is wrong, and go on.
  void check_refusals() {
    rank_list<float, Exec> list(exec_, std::vector<float>(static_cast<std::size_t>(3 * size_ + 1), 1.0F));
    auto const first = [&](std::int64_t count) { return list.part(0, count); };
    auto const sum = rank_reduction::sum;
    auto const none = static_cast<rank_reduction>(7);
    expect_refusal("a source of another size than the target's",
                   [&, this] { ranks_.all_reduce(exec_, first(3), sum, first(2)); });
    expect_refusal("a reduction that there is not", [&, this] { ranks_.all_reduce(exec_, first(2), none, first(2)); });
    expect_refusal("a target that is not all ranks' lists",
                   [&, this] { ranks_.all_gather(exec_, first(3), first(3 * size_ + 1)); });
    expect_refusal("a source that is not all ranks' parts",
                   [&, this] { ranks_.reduce_scatter(exec_, first(3 * size_ + 1), sum, first(3)); });
    expect_refusal("a list without memory",
                   [&, this] { ranks_.all_reduce(exec_, array_view<float>(nullptr, 3), sum, first(3)); });
    array_view<float> every_other = first(2);
    every_other.strides[0] = 2;
    expect_refusal("a list with a stride", [&, this] { ranks_.all_reduce(exec_, first(2), sum, every_other); });
    expect_refusal("a rank that there is not", [&, this] { ranks_.send(exec_, first(3), size_); });
    expect_refusal("a negative rank", [&, this] { ranks_.receive(exec_, -1, first(3)); });
    expect_refusal("its own rank outside of grouped()", [&, this] { ranks_.send(exec_, first(3), rank_); });
    expect_refusal("parts that all_to_all does not share evenly",
                   [&, this] { all_to_all(exec_, ranks_, first(3 * size_ + (size_ > 1)), first(3 * size_ + 1)); });
    check_all_reduce<float>(sum, 7);
    check_pairs<float>(7);
  }

  law_report report;

 private:
  template <class T>
  std::vector<T> numbers(int rank, std::int64_t count) const {
    return numbers_of_rank<T>(seed_, rank, size_, count);
  }

  /// The words of a law's counterexample.
  template <class T>
  std::string where(std::int64_t count, std::int64_t at) const {
    return "rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ", element " + std::to_string(at) +
           " of " + std::to_string(count) + ", each of " + std::to_string(sizeof(T)) + " bytes";
  }

  template <class T>
  void expect_same(std::string const& law, std::vector<T> const& found, std::vector<T> const& wanted) {
    auto const at = first_difference(found, wanted);
    report.expect(at < 0, law, at < 0 ? "" : where<T>(static_cast<std::int64_t>(wanted.size()), at));
  }

  template <class T>
  void expect_reduced(std::string const& law, std::vector<T> const& found, reduced_list<T> const& wanted,
                      std::int64_t first = 0) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      auto const at = i + static_cast<std::size_t>(first);
      bool const holds =
          Ranks::reduces_in_rank_order ? is_same_or_nan(found[i], wanted.values[at]) : wanted.takes(at, found[i]);
      if (!holds) {
        report.expect(false, law, where<T>(static_cast<std::int64_t>(wanted.values.size()), i));
      }
    }
  }

  template <class T>
  void expect_intact(std::string const& call, rank_list<T, Exec> const& list) {
    report.expect(list.is_intact(), call + " writes nothing beside its target", where<T>(list.size(), 0));
  }

  template <class Call>
  void expect_refusal(std::string const& what, Call const& call) {
    bool is_refused = false;
    try {
      call();
    } catch (error const&) {
      is_refused = true;
    }
    report.expect(is_refused, "all ranks refuse " + what);
  }

  template <class T>
  void check_all_reduce(rank_reduction reduction, std::int64_t count) {
    auto const own = numbers<T>(rank_, count);
    auto const wanted = reduce_numbers<T>(seed_, size_, count, reduction);
    std::string const law = "all_reduce gives the " + name_of(reduction) + " of all ranks' elements";
    rank_list<T, Exec> source(exec_, own);
    rank_list<T, Exec> target(exec_, std::vector<T>(own.size()));
    ranks_.all_reduce(exec_, source.view(), reduction, target.view());
    auto const found = target.read();
    expect_reduced(law, found, wanted);
    expect_same("all_reduce leaves its source as it is", source.read(), own);
    expect_intact("all_reduce", target);

    rank_list<T, Exec> both(exec_, own);
    ranks_.all_reduce(exec_, both.view(), reduction, both.view());
    expect_reduced(law + " in place", both.read(), wanted);
    expect_intact("all_reduce in place", both);
    ranks_.all_reduce(exec_, source.view(), reduction, target.view());
    if (Ranks::reduces_in_rank_order) {
      expect_same("all_reduce gives the same bits again", target.read(), found);
    }
    rank_list<T, Exec> all(exec_, std::vector<T>(own.size() * static_cast<std::size_t>(size_)));
    ranks_.all_gather(exec_, target.view(), all.view());
    auto const others = all.read();
    auto const mine = target.read();
    for (int rank = 0; rank < size_; ++rank) {
      expect_same("all_reduce gives the same bits to all ranks", part_of(others, rank * count, count), mine);
    }
  }

  template <class T>
  void check_reduce_scatter(rank_reduction reduction, std::int64_t count) {
    auto const own = numbers<T>(rank_, count * size_);
    auto const wanted = reduce_numbers<T>(seed_, size_, count * size_, reduction);
    std::string const law = "reduce_scatter gives a rank its part of the " + name_of(reduction);
    rank_list<T, Exec> source(exec_, own);
    rank_list<T, Exec> target(exec_, std::vector<T>(static_cast<std::size_t>(count)));
    ranks_.reduce_scatter(exec_, source.view(), reduction, target.view());
    auto const found = target.read();
    expect_reduced(law, found, wanted, rank_ * count);
    expect_same("reduce_scatter leaves its source as it is", source.read(), own);
    expect_intact("reduce_scatter", target);

    rank_list<T, Exec> both(exec_, own);
    ranks_.reduce_scatter(exec_, both.view(), reduction, both.part(rank_ * count, count));
    expect_reduced(law + " in place", part_of(both.read(), rank_ * count, count), wanted, rank_ * count);
    expect_intact("reduce_scatter in place", both);
    if (Ranks::reduces_in_rank_order) {
      rank_list<T, Exec> whole(exec_, own);
      ranks_.all_reduce(exec_, whole.view(), reduction, whole.view());
      expect_same("reduce_scatter gives the parts of all_reduce", found, part_of(whole.read(), rank_ * count, count));
    }
  }

  template <class T>
  void check_all_gather(std::int64_t count) {
    std::vector<T> wanted;
    for (int rank = 0; rank < size_; ++rank) {
      auto const of_rank = numbers<T>(rank, count);
      wanted.insert(wanted.end(), of_rank.begin(), of_rank.end());
    }
    std::string const law = "all_gather puts the elements of rank r at place r";
    rank_list<T, Exec> source(exec_, numbers<T>(rank_, count));
    rank_list<T, Exec> target(exec_, std::vector<T>(wanted.size()));
    ranks_.all_gather(exec_, source.view(), target.view());
    expect_same(law, target.read(), wanted);
    expect_same("all_gather leaves its source as it is", source.read(), numbers<T>(rank_, count));
    expect_intact("all_gather", target);
    std::vector<T> own_alone(wanted.size());
    std::copy_n(wanted.begin() + rank_ * count, count, own_alone.begin() + rank_ * count);
    rank_list<T, Exec> both(exec_, own_alone);
    ranks_.all_gather(exec_, both.part(rank_ * count, count), both.view());
    expect_same(law + " in place", both.read(), wanted);
    expect_intact("all_gather in place", both);
  }

  /// Every rank sends two lists to every rank, itself among them, of lengths that differ, and asks for them in another
  /// order than that in which the others send.
  template <class T>
  void check_pairs(std::int64_t count) {
    auto const length = [&](int from, int to, int which) { return count + (from + 2 * to + which) % 3; };
    auto const content = [&, this](int from, int to, int which) {
      return numbers<T>(from + size_ * (to + size_ * which), length(from, to, which));
    };
    std::vector<rank_list<T, Exec>> sources;
    std::vector<rank_list<T, Exec>> targets;
    for (int which : {0, 1}) {
      for (int other = 0; other < size_; ++other) {
        sources.emplace_back(exec_, content(rank_, other, which));
        targets.emplace_back(exec_, std::vector<T>(static_cast<std::size_t>(length(other, rank_, which))));
      }
    }
    ranks_.grouped([&, this] {
      for (int i = 0; i < 2 * size_; ++i) {
        int const from = size_ - 1 - i % size_;
        ranks_.receive(exec_, from, targets[static_cast<std::size_t>(i / size_ * size_ + from)].view());
      }
      for (int i = 0; i < 2 * size_; ++i) {
        ranks_.send(exec_, sources[static_cast<std::size_t>(i)].view(), i % size_);
      }
    });
    for (int i = 0; i < 2 * size_; ++i) {
      auto const& target = targets[static_cast<std::size_t>(i)];
      expect_same("the n-th receive from a rank gets its n-th send", target.read(),
                  content(i % size_, rank_, i / size_));
      expect_intact("receive", target);
    }
  }

  /// Lists go round until every rank has had each, in groups whose send and receive stand in any order.
  template <class T>
  void check_ring(std::int64_t count) {
    rank_list<T, Exec> held(exec_, numbers<T>(rank_, count));
    rank_list<T, Exec> next(exec_, std::vector<T>(static_cast<std::size_t>(count)));
    for (int step = 1; step <= size_; ++step) {
      ranks_.grouped([&, this] {
        if ((rank_ + step) % 2 == 0) {
          ranks_.send(exec_, held.view(), (rank_ + 1) % size_);
        }
        ranks_.receive(exec_, (rank_ + size_ - 1) % size_, next.view());
        if ((rank_ + step) % 2 != 0) {
          ranks_.send(exec_, held.view(), (rank_ + 1) % size_);
        }
      });
      exec_.copy(next.view(), held.view());
      expect_same("lists that go round a ring come as they were", held.read(),
                  numbers<T>((rank_ + size_ - step) % size_, count));
    }
  }

  /// A list goes from rank 0 to the last one, without groups.
  template <class T>
  void check_chain(std::int64_t count) {
    rank_list<T, Exec> list(exec_, rank_ == 0 ? numbers<T>(0, count) : std::vector<T>(static_cast<std::size_t>(count)));
    if (rank_ > 0) {
      ranks_.receive(exec_, rank_ - 1, list.view());
    }
    if (rank_ + 1 < size_) {
      ranks_.send(exec_, list.view(), rank_ + 1);
    }
    expect_same("a list that is sent on comes as it was", list.read(), numbers<T>(0, count));
  }

  template <class T>
  void check_all_to_all(std::int64_t count) {
    std::vector<T> wanted;
    for (int from = 0; from < size_; ++from) {
      auto const part = part_of(numbers<T>(from, count * size_), rank_ * count, count);
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
    rank_list<T, Exec> source(exec_, numbers<T>(rank_, count * size_));
    rank_list<T, Exec> target(exec_, std::vector<T>(wanted.size()));
    all_to_all(exec_, ranks_, source.view(), target.view());
    expect_same("all_to_all gives rank b's part of a to b", target.read(), wanted);
    expect_intact("all_to_all", target);
  }

  Exec const& exec_;
  Ranks& ranks_;
  int rank_;
  int size_;
  std::uint64_t seed_;
};

}  // namespace detail

/// Checks one rank's part of the laws; all ranks call it with the same seed. Types of reductions are float, double,
/// int32, int64, bfloat16 and float16; bytes and elements of three bytes are exchanged, too. What a communicator throws
/// where it must not is a broken law, after which this rank checks no more and may be left.
template <Executor Exec, Communicator<Exec> Ranks>
law_report check_communicator_laws(Exec const& exec, Ranks& ranks, std::uint64_t seed = 1) {
  detail::communicator_check<Exec, Ranks> check(exec, ranks, seed);
  bool const has_place = ranks.size() >= 1 && ranks.rank() >= 0 && ranks.rank() < ranks.size();
  check.report.expect(has_place, "a rank is one of 0 to size() - 1",
                      std::to_string(ranks.rank()) + " of " + std::to_string(ranks.size()));
  if (!has_place) {
    return check.report;
  }
  try {
    for (std::int64_t count : {0, 1, 7, 1031}) {
      check.template check_reductions<float>(count);
      check.template check_reductions<double>(count);
      check.template check_reductions<std::int32_t>(count);
      check.template check_reductions<std::int64_t>(count);
      check.template check_reductions<bfloat16>(count);
      check.template check_reductions<float16>(count);
      check.template check_exchanges<float>(count);
      check.template check_exchanges<std::uint8_t>(count);
      check.template check_exchanges<detail::three_bytes>(count);
    }
    check.check_refusals();
  } catch (error const& thrown) {
    check.report.expect(false, "calls with right arguments throw nothing", thrown.what());
  }
  return check.report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
