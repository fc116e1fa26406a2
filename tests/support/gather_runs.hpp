// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs of compressed_all_gather on ranks in threads: what all ranks get, and what they say to damaged messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_all_gather.hpp>
#include <tessera/algorithm/weights/detail/message_layout.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/concepts/comm/peer_communicator.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/collective_runs.hpp"
#include "support/message_of.hpp"

namespace compressed_all_gather_test {

using namespace tessera;
using namespace tessera_test;
using tessera::testing::on_ranks;

static_assert(PeerCommunicator<damaging_ranks, cpu>);

/// What a rank has found.
template <class T>
struct found_by_rank {
  std::vector<T> all;
  compressed_traffic traffic;
  bool is_sound = false;
};

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// The lists of all ranks behind each other.
template <class T>
std::vector<T> joined(std::vector<weight_array<T>> const& lists) {
  std::vector<T> all;
  for (auto const& list : lists) {
    all.insert(all.end(), list.data(), list.data() + list.size());
  }
  return all;
}

template <class T>
std::vector<weight_array<T>> lists_of(int ranks, std::uint64_t seed, std::int64_t count) {
  std::vector<weight_array<T>> lists;
  for (int rank = 0; rank < ranks; ++rank) {
    lists.push_back(weights_of_rank<T>(rank, seed, count));
  }
  return lists;
}

template <class Codec>
using found_list = std::vector<found_by_rank<typename Codec::value_type>>;

/// What all ranks get of these lists. In place, a rank's list is its part of the result.
template <class Codec>
found_list<Codec> gather_lists(std::vector<weight_array<typename Codec::value_type>> const& lists,
                               compressed_collective_options const& options, bool is_in_place = false) {
  using collective = compressed_all_gather<Codec>;
  using type = typename Codec::value_type;
  auto const count = static_cast<int>(lists.size());
  found_list<Codec> found(lists.size());
  on_ranks(count, [&](threads& ranks) {
    auto const rank = static_cast<std::size_t>(ranks.rank());
    std::int64_t const size = lists[rank].count();
    found[rank].all.assign(lists.size() * static_cast<std::size_t>(size), from_bits<type>(0x55));
    array_view<type> const all = found[rank].all;
    array_view<type const> own = lists[rank].view();
    if (is_in_place) {
      std::copy(own.data, own.data + size, all.data + ranks.rank() * size);
      own = all.slice(0, ranks.rank() * size, size);
    }
    found[rank].is_sound = with_collective_space<collective>(
        [&](cpu const& exec) { return collective::plan(exec, ranks.size(), size, options); },
        [&](cpu const& exec, side_queue<cpu> const& wire, workspace const& space) {
          found[rank].traffic = collective::exchange(exec, wire, ranks, own, all, options, space);
          exec.wait();
        });
  });
  return found;
}

template <class Codec>
void check_gathered(int ranks, std::uint64_t seed, std::int64_t count, compressed_collective_options const& options,
                    bool is_in_place = false) {
  INFO(ranks << " ranks, seed " << seed << ", " << count << " weights");
  auto const lists = lists_of<typename Codec::value_type>(ranks, seed, count);
  auto const wanted = joined(lists);
  for (auto const& of_rank : gather_lists<Codec>(lists, options, is_in_place)) {
    CHECK(same_bits(of_rank.all, wanted));
    CHECK(of_rank.is_sound);
    CHECK(of_rank.traffic.weights == count * static_cast<std::int64_t>(sizeof(typename Codec::value_type)));
  }
}

/// What the ranks of two say, and get, when rank 1 receives damaged messages.
struct damaged_run {
  std::string said[2];
  std::vector<bfloat16> all[2];
  bool is_sound[2] = {};
};

inline damaged_run run_damaged(std::vector<weight_array<bfloat16>> const& lists,
                               compressed_collective_options const& options,
                               damaging_ranks::damage_type const& damage) {
  using collective = compressed_all_gather<neuzip>;
  damaged_run run;
  on_ranks(2, [&](threads& sound_ranks) {
    int const rank = sound_ranks.rank();
    auto const& own = lists[static_cast<std::size_t>(rank)];
    damaging_ranks ranks(
        sound_ranks, rank == 1 ? damage : [](int, int, array_view<std::byte>) {});
    run.all[rank].assign(2 * own.size(), from_bits<bfloat16>(0x55));
    run.is_sound[rank] = with_collective_space<collective>(
        [&](cpu const& exec) { return collective::plan(exec, 2, own.count(), options); },
        [&](cpu const& exec, side_queue<cpu> const& wire, workspace const& space) {
          run.said[rank] = message_of([&] {
            collective::exchange(exec, wire, ranks, own.view(), run.all[rank], options, space);
            exec.wait();
          });
        });
  });
  return run;
}

/// Checks that rank 1 refused a chunk of the 2 * layout.count weights in which one bit was wrong, and has all others;
/// rank 0 has them all. Returns whether the bit is one that says nothing, as there are some between sections.
inline bool is_padding(damaged_run const& run, detail::message_layout<neuzip> const& layout, std::int64_t chunk,
                       std::vector<bfloat16> const& wanted) {
  CHECK(run.said[0].empty());
  CHECK(same_bits(run.all[0], wanted));
  CHECK(run.is_sound[1]);
  if (run.said[1].empty()) {
    CHECK(same_bits(run.all[1], wanted));
    return true;
  }
  CHECK_THAT(run.said[1], contains("compressed_weights.decode: "));
  bool others_are_right = true;
  for (std::int64_t i = 0; i < 2 * layout.count; ++i) {
    bool const is_damaged = i >= layout.first_of(chunk) && i < layout.first_of(chunk) + layout.weights_of(chunk);
    auto const at = static_cast<std::size_t>(i);
    others_are_right = others_are_right && (is_damaged || run.all[1][at].bits == wanted[at].bits);
  }
  CHECK(others_are_right);
  return false;
}

}  // namespace compressed_all_gather_test
