// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a PeerCommunicator. Every rank checks them at the same time, with memory of one size that the ranks can
/// share: `check_peer_communicator_laws(exec, ranks, memory)`.
///
///     tessera::testing::on_ranks(8, [](tessera::threads& ranks) {
///       std::vector<std::byte> memory(4096);
///       auto const report = tessera::testing::check_peer_communicator_laws(tessera::cpu{.threads = 1}, ranks, memory);
///       if (!report.is_empty()) { std::puts(report.text().c_str()); }
///     });
///
/// In each of several rounds every rank stores a list of its own into the memory of all, and compares what all stored
/// into its own. One rank, another one in each round, waits a while before it stores, and before it reads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <tessera/concepts/comm/peer_communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/error.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {
namespace detail {

/// What a rank stores in a round.
inline std::vector<std::byte> stored_bytes(int round, int rank, std::int64_t count) {
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    auto const which = static_cast<std::uint64_t>(i + count * (rank + std::int64_t{1000} * round));
    bytes.push_back(static_cast<std::byte>(hash(1, which) >> 56));
  }
  return bytes;
}

/// One round of a rank; `part`: the bytes that each rank stores into each rank's memory.
template <Executor Exec, PeerCommunicator<Exec> Ranks>
void check_stores(Exec const& exec, Ranks& ranks, array_view<std::byte> memory, int round, law_report& report) {
  bool const is_late = round % ranks.size() == ranks.rank();
  std::int64_t const part = memory.size() / ranks.size();
  auto const wait_if_late = [&] {
    if (is_late) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  auto const own = stored_bytes(round, ranks.rank(), part);
  std::vector<std::byte*> const at = ranks.share(exec, memory);
  report.expect(std::ssize(at) == ranks.size(), "share gives an address for each rank",
                std::to_string(at.size()) + " for " + std::to_string(ranks.size()));
  if (std::ssize(at) != ranks.size()) {
    return;
  }
  wait_if_late();
  for (std::byte* const first : at) {
    exec.copy(array_view<std::byte const>(own.data(), part), array_view<std::byte>(first + ranks.rank() * part, part));
  }
  ranks.meet(exec);
  wait_if_late();
  std::vector<std::byte> found(static_cast<std::size_t>(part * ranks.size()));
  exec.copy(array_view<std::byte const>(memory).slice(0, 0, std::ssize(found)), found);
  exec.wait();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    auto const first = found.begin() + rank * part;
    report.expect(std::vector<std::byte>(first, first + part) == stored_bytes(round, rank, part),
                  "after meet() a rank's memory holds what the others stored after share()",
                  "rank " + std::to_string(rank) + " to " + std::to_string(ranks.rank()));
  }
}

}  // namespace detail

/// Checks one rank's part of the laws; all ranks call it with memory of the same size. What a communicator throws is a
/// broken law, after which this rank checks no more and may be left.
template <Executor Exec, PeerCommunicator<Exec> Ranks>
law_report check_peer_communicator_laws(Exec const& exec, Ranks& ranks, array_view<std::byte> memory) {
  law_report report;
  try {
    for (int round = 0; round < 8; ++round) {
      detail::check_stores(exec, ranks, memory.slice(0, 0, memory.size() >> round), round, report);
    }
    detail::check_stores(exec, ranks, memory.slice(0, 0, 0), 0, report);
  } catch (error const& thrown) {
    report.expect(false, "calls with right arguments throw nothing", thrown.what());
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
