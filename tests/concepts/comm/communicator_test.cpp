// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <mutex>
#include <type_traits>
#include <vector>

#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/laws/comm/communicator.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_communicator_laws;
using tessera::testing::law_report;
using tessera::testing::on_ranks;

static_assert(Communicator<loopback, cpu> && Communicator<threads, cpu>);
static_assert(!Communicator<int, cpu>);

namespace communicator_test {

template <class T>
using list_of = array_view<std::type_identity_t<T> const>;

/// A user's own communicator, made of another one.
struct wrapped {
  static constexpr bool reduces_in_rank_order = true;
  threads& inner;

  int rank() const { return inner.rank(); }
  int size() const { return inner.size(); }
  template <class T>
  void all_reduce(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    inner.all_reduce(exec, source, reduction, target);
  }
  template <class T>
  void all_gather(cpu const& exec, list_of<T> source, array_view<T> target) {
    inner.all_gather(exec, source, target);
  }
  template <class T>
  void reduce_scatter(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    inner.reduce_scatter(exec, source, reduction, target);
  }
  template <class T>
  void send(cpu const& exec, array_view<T> source, int to) {
    inner.send(exec, source, to);
  }
  template <class T>
  void receive(cpu const& exec, int from, array_view<T> target) {
    inner.receive(exec, from, target);
  }
  template <class Function>
  void grouped(Function&& function) {
    inner.grouped(function);
  }
};
static_assert(Communicator<wrapped, cpu>);

/// The lists of all ranks, one behind the other.
template <class T>
std::vector<T> gathered(threads& ranks, cpu const& exec, list_of<T> source) {
  std::vector<T> all(static_cast<std::size_t>(source.size() * ranks.size()));
  ranks.all_gather(exec, source, array_view<T>(all.data(), source.size() * ranks.size()));
  return all;
}

/// Adds the last rank first.
struct adding_from_the_end : wrapped {
  template <class T>
  void all_reduce(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    if (reduction != rank_reduction::sum || source.size() != target.size() || !target.is_contiguous() ||
        source.data == nullptr) {
      return inner.all_reduce(exec, source, reduction, target);
    }
    auto const all = gathered<T>(inner, exec, source);
    std::vector<void const*> lists;
    for (int rank = size(); rank-- > 0;) {
      lists.push_back(all.data() + rank * source.size());
    }
    detail::reduce_in_rank_order<T>(reduction, lists.data(), size(), 0, source.size(), target.data);
  }
};

/// Makes one rank's bits other than the rest's, by a last bit of rank 0's first element.
struct differing_on_a_rank : wrapped {
  template <class T>
  void all_reduce(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    inner.all_reduce(exec, source, reduction, target);
    if (rank() == 0 && target.size() > 0) {
      *reinterpret_cast<unsigned char*>(target.data) ^= 1U;
    }
  }
};

struct taking_minima_for_maxima : wrapped {
  template <class T>
  void all_reduce(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    inner.all_reduce(exec, source, reduction == rank_reduction::maximum ? rank_reduction::minimum : reduction, target);
  }
};

/// Writes the target before it has read the source.
struct clearing_first : wrapped {
  template <class T>
  void all_reduce(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    if (source.size() == target.size() && target.is_contiguous()) {
      exec.clear(target);
    }
    inner.all_reduce(exec, source, reduction, target);
  }
};

/// Reduces in its source.
struct changing_its_source : wrapped {
  template <class T>
  void all_reduce(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    inner.all_reduce(exec, source, reduction, target);
    exec.copy(target, array_view<T>(const_cast<T*>(source.data), source.size()));
  }
};

struct writing_beyond : wrapped {
  template <class T>
  void receive(cpu const& exec, int from, array_view<T> target) {
    inner.receive(exec, from, target);
    target.data[target.size()] = T{};
  }
};

struct gathering_from_the_end : wrapped {
  template <class T>
  void all_gather(cpu const& exec, list_of<T> source, array_view<T> target) {
    inner.all_gather(exec, source, target);
    auto const all = gathered<T>(inner, exec, source);
    for (int rank = 0; rank < size(); ++rank) {
      std::copy_n(all.begin() + (size() - 1 - rank) * source.size(), source.size(), target.data + rank * source.size());
    }
  }
};

/// Gives a rank its neighbour's part.
struct scattering_to_the_neighbour : wrapped {
  template <class T>
  void reduce_scatter(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    std::vector<T> all(source.data, source.data + source.size());
    inner.reduce_scatter(exec, source, reduction, target);
    inner.all_reduce(exec, list_of<T>(all.data(), source.size()), reduction, array_view<T>(all.data(), source.size()));
    std::copy_n(all.begin() + (rank() + 1) % size() * target.size(), target.size(), target.data);
  }
};

/// Exchanges at once what is in a group.
struct exchanging_at_once : wrapped {
  template <class Function>
  void grouped(Function&& function) {
    function();
  }
};

/// Sends a zero instead of a list's last element.
struct forgetting_the_last_element : wrapped {
  template <class T>
  void send(cpu const& exec, array_view<T> source, int to) {
    if (source.size() > 1) {
      kept.emplace_back(reinterpret_cast<std::byte const*>(source.data),
                        reinterpret_cast<std::byte const*>(source.data + source.size() - 1));
      kept.back().resize(kept.back().size() + sizeof(T));
      return inner.send(exec, array_view<T const>(reinterpret_cast<T const*>(kept.back().data()), source.size()), to);
    }
    inner.send(exec, source, to);
  }
  std::vector<std::vector<std::byte>> kept = {};
};

struct taking_any_reduction : wrapped {
  template <class T>
  void all_reduce(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    inner.all_reduce(exec, source, reduction > rank_reduction::minimum ? rank_reduction::sum : reduction, target);
  }
};

struct taking_any_sizes : wrapped {
  template <class T>
  void all_reduce(cpu const& exec, list_of<T> source, rank_reduction reduction, array_view<T> target) {
    auto const count = source.size() < target.size() ? source.size() : target.size();
    inner.all_reduce(exec, list_of<T>(source.data, count), reduction,
                     target.data == nullptr || !target.is_contiguous() ? target : array_view<T>(target.data, count));
  }
};

struct misnumbered : wrapped {
  int rank() const { return inner.rank() + 1; }
};

/// The reports of all ranks of a model that wraps `threads`.
template <class Ranks>
law_report report_of(int count) {
  law_report all;
  std::mutex mutex;
  on_ranks(count, [&](threads& inner) {
    Ranks ranks{{inner}};
    auto const report = check_communicator_laws(cpu{.threads = 1}, ranks);
    std::lock_guard const lock(mutex);
    all.include("", report);
  });
  return all;
}

}  // namespace communicator_test

using namespace communicator_test;

TEST_CASE("a user's own communicator keeps the laws", "[host][threads]") {
  CHECK(report_of<wrapped>(1).text() == "");
  CHECK(report_of<wrapped>(3).text() == "");
}

TEST_CASE("communicators that reduce wrongly are caught", "[host][threads]") {
  CHECK(report_of<adding_from_the_end>(3).mentions("all_reduce gives the sum of all ranks' elements"));
  CHECK(report_of<adding_from_the_end>(2).text() == "");  // the order of two is one
  CHECK(report_of<differing_on_a_rank>(2).mentions("all_reduce gives the same bits to all ranks"));
  CHECK(report_of<taking_minima_for_maxima>(2).mentions("all_reduce gives the maximum of all ranks' elements"));
  CHECK(report_of<clearing_first>(2).mentions("all_reduce gives the sum of all ranks' elements in place"));
  CHECK(report_of<changing_its_source>(2).mentions("all_reduce leaves its source as it is"));
}

TEST_CASE("communicators that put lists in the wrong place are caught", "[host][threads]") {
  CHECK(report_of<gathering_from_the_end>(3).mentions("all_gather puts the elements of rank r at place r"));
  CHECK(report_of<scattering_to_the_neighbour>(3).mentions("reduce_scatter gives a rank its part of the sum"));
  CHECK(report_of<writing_beyond>(2).mentions("receive writes nothing beside its target"));
  CHECK(report_of<forgetting_the_last_element>(2).mentions("the n-th receive from a rank gets its n-th send"));
}

TEST_CASE("communicators whose groups are none are caught", "[host][threads]") {
  CHECK(report_of<exchanging_at_once>(2).mentions("calls with right arguments throw nothing"));
}

TEST_CASE("communicators that take what is wrong are caught", "[host][threads]") {
  CHECK(report_of<taking_any_reduction>(2).mentions("all ranks refuse a reduction that there is not"));
  CHECK(report_of<taking_any_sizes>(2).mentions("all ranks refuse a source of another size than the target's"));
  CHECK(report_of<misnumbered>(2).mentions("a rank is one of 0 to size() - 1: 2 of 2"));
}
