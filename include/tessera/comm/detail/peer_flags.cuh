// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How ranks on several GPUs wait for each other without a collective: each has a page of flags, into which the others
/// store how often they have come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A rank's page of flags: how often each rank has come, how often the own one has, where each rank's memory begins,
/// and the rank's sign.
struct peer_flags {
  std::uint64_t* words = nullptr;
  std::int64_t place = 0;  ///< bytes from the beginning of a rank's memory to its page

  /// Words and bytes of the page of so many ranks.
  static constexpr std::int64_t words_for(std::int64_t ranks) { return 2 * ranks + 2; }
  static constexpr std::int64_t bytes(std::int64_t ranks) {
    return words_for(ranks) * static_cast<std::int64_t>(sizeof(std::uint64_t));
  }
  /// The last word of a rank's page, by which the others know that it is the rank's.
  static constexpr std::uint64_t sign_of(int rank) { return 0x7e55e7a000000000U + static_cast<std::uint64_t>(rank); }
  /// Where the addresses of all ranks' memory stand.
  TESSERA_FN std::uint64_t* addresses(int ranks) const { return words + ranks + 1; }
};

/// Memory of all ranks, as each of them sees it.
struct peer_memory {
  array_view<std::byte> own;
  std::vector<std::byte*> of_ranks;  ///< empty where not all ranks reach each other's memory
  peer_flags flags;

  /// The byte of the memory at which a part of it begins. Throws value_error where it is none.
  [[nodiscard]] std::int64_t place_of(char const* function, array_view<std::byte> part) const {
    auto const first = reinterpret_cast<std::uintptr_t>(part.data);
    auto const begin = reinterpret_cast<std::uintptr_t>(own.data);
    auto const end = begin + static_cast<std::uintptr_t>(own.size());
    check<value_error>(first >= begin && first <= end && part.size() <= static_cast<std::int64_t>(end - first),
                       function, ": ", part.size(), " bytes are given that are no part of the ", own.size(),
                       " bytes of nccl_memory that use() was given");
    return static_cast<std::int64_t>(first - begin);
  }
};

/// Tells all ranks that this one has come, and waits until all have come as often. Earlier work of the stream is done
/// when the program begins, so that the fence in front of the flags puts before them all that the rank stored; later
/// work begins after the fence behind them.
struct meet_peers {
  static constexpr int lanes = 32;
  struct scratch_type {};

  peer_flags flags;
  int rank;
  int ranks;

  template <Group G>
  __device__ void operator()(G const& group, std::int64_t, scratch_type&) const {
    std::uint64_t volatile* const own = flags.words;
    std::uint64_t const times = own[ranks] + 1;
    group.sync();
    __threadfence_system();
    for (int lane : group) {
      if (lane == 0) {
        own[ranks] = times;
      }
      for (int other = lane; other < ranks; other += lanes) {
        auto const there = static_cast<std::uintptr_t>(flags.addresses(ranks)[other]) + flags.place;
        reinterpret_cast<std::uint64_t volatile*>(there)[rank] = times;
      }
      for (int other = lane; other < ranks; other += lanes) {
        while (own[other] < times) {
        }
      }
    }
    __threadfence_system();
    group.sync();
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
