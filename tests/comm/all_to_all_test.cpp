// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/comm/all_to_all.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera::testing::on_ranks;
using tessera_test::contains;
using tessera_test::message_of;

namespace all_to_all_test {

struct pair_of_numbers {
  std::int32_t first;
  float second;

  friend bool operator==(pair_of_numbers const&, pair_of_numbers const&) = default;
};

template <class T>
array_view<T> view_of(std::vector<T>& list) {
  return {list.data(), static_cast<std::int64_t>(list.size())};
}

/// The lists that `count` ranks get of those that they give.
template <class T>
std::vector<std::vector<T>> exchanged(std::vector<std::vector<T>> given) {
  std::vector<std::vector<T>> made;
  for (auto const& list : given) {
    made.emplace_back(list.size());
  }
  on_ranks(static_cast<int>(given.size()), [&](threads& ranks) {
    auto const rank = static_cast<std::size_t>(ranks.rank());
    all_to_all(cpu{.threads = 1}, ranks, view_of(given[rank]), view_of(made[rank]));
  });
  return made;
}

}  // namespace all_to_all_test

using namespace all_to_all_test;

TEST_CASE("all_to_all transposes parts and ranks", "[host][threads]") {
  std::size_t const count = GENERATE(1U, 2U, 3U, 8U);
  std::size_t const part = GENERATE(0U, 1U, 7U, 1001U);
  std::vector<std::vector<pair_of_numbers>> given(count);
  std::vector<std::vector<pair_of_numbers>> wanted(count);
  auto const element = [&](std::size_t from, std::size_t to, std::size_t i) {
    return pair_of_numbers{static_cast<std::int32_t>(testing::hash(from, to * part + i)), static_cast<float>(i)};
  };
  for (std::size_t rank = 0; rank < count; ++rank) {
    for (std::size_t i = 0; i < count * part; ++i) {
      given[rank].push_back(element(rank, i / part, i % part));
      wanted[rank].push_back(element(i / part, rank, i % part));
    }
  }
  auto const made = exchanged(given);
  CHECK((made == wanted));
  CHECK((exchanged(made) == given));
}

TEST_CASE("all_to_all of one rank copies its list", "[host]") {
  loopback ranks;
  std::vector<float> given{1, 2, 3};
  std::vector<float> made(3);
  all_to_all(cpu{.threads = 1}, ranks, view_of(given), view_of(made));
  CHECK(made == given);
}

TEST_CASE("where one rank refuses all_to_all the others learn why", "[host][threads]") {
  std::string const refusals[] = {"all_to_all: the source has 4 elements but the target has 6",
                                  "all_to_all: the source has 5 elements, which 3 ranks do not share evenly",
                                  "all_to_all: the target has a stride of 2 but must have a stride of 1",
                                  "all_to_all: the source has no memory but 6 elements"};
  for (std::size_t which = 0; which < 4; ++which) {
    std::vector<std::string> said(3);
    std::vector<std::vector<float>> made(3, std::vector<float>(12));
    on_ranks(3, [&](threads& ranks) {
      cpu const exec{.threads = 1};
      auto const rank = static_cast<std::size_t>(ranks.rank());
      std::vector<float> given(6, static_cast<float>(rank));
      array_view<float> source(given.data(), 6);
      array_view<float> target(made[rank].data(), 6);
      if (rank == 1) {
        source.extents[0] = which == 0 ? 4 : which == 1 ? 5 : 6;
        target.extents[0] = which == 1 ? 5 : 6;
        target.strides[0] = which == 2 ? 2 : 1;
        source.data = which == 3 ? nullptr : source.data;
      }
      said[rank] = message_of([&] { all_to_all(exec, ranks, source, target); });
      float one = 1;
      ranks.all_reduce(exec, array_view<float const>(&one, 1), rank_reduction::sum, array_view<float>(&one, 1));
      all_to_all(exec, ranks, view_of(given), array_view<float>(made[rank].data(), 6));
    });
    CHECK(said[1] == refusals[which]);
    CHECK_THAT(said[0], contains("rank 1, which refused a call: " + refusals[which]));
    CHECK_THAT(said[2], contains("rank 1, which refused a call: " + refusals[which]));
    CHECK(made[2] == std::vector<float>{0, 0, 1, 1, 2, 2, 0, 0, 0, 0, 0, 0});
  }
}
