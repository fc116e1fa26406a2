// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/laws/comm/peer_communicator.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera::testing::check_peer_communicator_laws;
using tessera::testing::law_report;
using tessera::testing::on_ranks;
using tessera_test::message_of;

static_assert(PeerCommunicator<loopback, cpu> && PeerCommunicator<threads, cpu>);
static_assert(!PeerCommunicator<int, cpu>);

namespace peer_communicator_test {

/// Whether ThreadSanitizer looks for the races that ranks have which do not wait.
#if defined(__SANITIZE_THREAD__)
constexpr bool finds_races = true;
#elif defined(__has_feature)
constexpr bool finds_races = __has_feature(thread_sanitizer);
#else
constexpr bool finds_races = false;
#endif

/// Models that break a law.
struct storing_at_once : threads {
  explicit storing_at_once(threads&& inner) : threads(std::move(inner)) {}
  void meet(cpu const&) {}
};
struct sharing_at_once : threads {
  explicit sharing_at_once(threads&& inner) : threads(std::move(inner)) {}
  std::vector<std::byte*> share(cpu const& exec, array_view<std::byte> own) {
    if (known.empty()) {
      known = threads::share(exec, own);
    }
    return known;
  }
  std::vector<std::byte*> known = {};
};
struct losing : threads {
  explicit losing(threads&& inner) : threads(std::move(inner)) {}
  std::vector<std::byte*> share(cpu const& exec, array_view<std::byte> own) {
    auto at = threads::share(exec, own);
    lost.resize(static_cast<std::size_t>(own.size()));
    at[static_cast<std::size_t>((rank() + 1) % size())] = lost.data();
    return at;
  }
  std::vector<std::byte> lost = {};
};
struct forgetting_a_rank : threads {
  explicit forgetting_a_rank(threads&& inner) : threads(std::move(inner)) {}
  std::vector<std::byte*> share(cpu const& exec, array_view<std::byte> own) {
    auto at = threads::share(exec, own);
    at.pop_back();
    return at;
  }
};
static_assert(PeerCommunicator<storing_at_once, cpu> && PeerCommunicator<sharing_at_once, cpu>);

/// The reports of all ranks of a model.
template <class Ranks>
law_report peer_report_of(int count) {
  law_report all;
  std::mutex mutex;
  std::vector<std::vector<std::byte>> memory(static_cast<std::size_t>(count), std::vector<std::byte>(4099));
  on_ranks(count, [&](threads& inner) {
    auto& own = memory[static_cast<std::size_t>(inner.rank())];
    Ranks ranks(std::move(inner));
    auto const report = check_peer_communicator_laws(cpu{.threads = 1}, ranks, own);
    std::lock_guard const lock(mutex);
    all.include("", report);
  });
  return all;
}

}  // namespace peer_communicator_test

using namespace peer_communicator_test;

TEST_CASE("one rank keeps the laws of a PeerCommunicator", "[host]") {
  loopback ranks;
  std::vector<std::byte> memory(1031);
  CHECK(check_peer_communicator_laws(cpu{.threads = 1}, ranks, memory).text() == "");
  CHECK(check_peer_communicator_laws(testing::adversary{}, ranks, memory).text() == "");
  CHECK(message_of([&] { static_cast<void>(ranks.share(cpu{}, array_view<std::byte>(nullptr, 3))); }) ==
        "loopback.share: the memory has no memory but 3 elements");
}

TEST_CASE("ranks that are threads keep the laws of a PeerCommunicator", "[host][threads]") {
  int const count = GENERATE(1, 2, 3, 8);
  CHECK(peer_report_of<threads>(count).text() == "");
}

TEST_CASE("peer communicators that break a law are caught", "[host][threads]") {
  std::string const stored = "after meet() a rank's memory holds what the others stored after share()";
  if (!finds_races) {
    CHECK(peer_report_of<storing_at_once>(2).mentions(stored));
    CHECK(peer_report_of<sharing_at_once>(3).mentions(stored));
  }
  CHECK(peer_report_of<losing>(3).mentions(stored));
  CHECK(peer_report_of<forgetting_a_rank>(2).mentions("share gives an address for each rank: 1 for 2"));
}

TEST_CASE("where ranks share memory of different sizes all of them learn it", "[host][threads]") {
  std::vector<std::string> said(2);
  on_ranks(2, [&](threads& ranks) {
    auto const rank = static_cast<std::size_t>(ranks.rank());
    std::vector<std::byte> memory(5 + 2 * rank);
    said[rank] = message_of([&] { static_cast<void>(ranks.share(cpu{.threads = 1}, memory)); });
    ranks.meet(cpu{.threads = 1});
  });
  CHECK(said[0] == "threads.share: rank 0 gives 5 elements but rank 1 gives 7");
  CHECK(said[1] == said[0]);
}

TEST_CASE("when a rank leaves the others learn it where they meet", "[host][threads]") {
  std::string said;
  on_ranks(2, [&](threads& ranks) {
    std::vector<std::byte> memory(16);
    static_cast<void>(ranks.share(cpu{.threads = 1}, memory));
    if (ranks.rank() == 0) {
      said = message_of([&] { ranks.meet(cpu{.threads = 1}); });
    }
  });
  CHECK(said == "threads.meet: rank 0 waits for rank 1, which has left the 2 ranks");
}
