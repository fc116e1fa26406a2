// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tessera/comm/all_to_all.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/comm/communicator.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera::testing::check_communicator_laws;
using tessera::testing::on_ranks;
using tessera_test::contains;
using tessera_test::message_of;

namespace threads_test {

constexpr auto added = rank_reduction::sum;

template <class T>
array_view<T> view_of(std::vector<T>& list) {
  return {list.data(), static_cast<std::int64_t>(list.size())};
}

/// What a function says on each rank that it throws; Catch2's assertions are for the main thread alone.
template <class Function>
std::vector<std::string> messages(int count, Function const& function) {
  std::vector<std::string> said(static_cast<std::size_t>(count));
  on_ranks(count, [&](threads& ranks) {
    said[static_cast<std::size_t>(ranks.rank())] = message_of([&] { function(ranks); });
  });
  return said;
}

/// The sum of the ranks' numbers, which each rank makes 1, 2, 3, ...: that all are in step.
float sum_of_ranks(threads& ranks) {
  float own = static_cast<float>(ranks.rank() + 1);
  ranks.all_reduce(cpu{.threads = 1}, array_view<float const>(&own, 1), added, array_view<float>(&own, 1));
  return own;
}

struct long_element {
  std::int64_t number;
  double value;
  char letter;
};

}  // namespace threads_test

using namespace threads_test;

TEST_CASE("ranks that are threads keep the laws of a Communicator", "[host][threads]") {
  int const count = GENERATE(1, 2, 3, 8);
  std::vector<std::string> said(static_cast<std::size_t>(count));
  on_ranks(count, [&](threads& ranks) {
    said[static_cast<std::size_t>(ranks.rank())] =
        check_communicator_laws(cpu{.threads = 1}, ranks, static_cast<std::uint64_t>(count)).text();
  });
  CHECK(said == std::vector<std::string>(said.size()));
}

TEST_CASE("ranks that are threads keep the laws on the adversary", "[host][threads]") {
  std::vector<std::string> said(3);
  on_ranks(3, [&](threads& ranks) {
    said[static_cast<std::size_t>(ranks.rank())] = check_communicator_laws(testing::adversary{}, ranks).text();
  });
  CHECK(said == std::vector<std::string>(3));
}

TEST_CASE("long lists are added in the order of the ranks", "[host][threads]") {
  constexpr std::int64_t count = 100'003;
  std::vector<std::vector<float>> lists(3);
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    for (std::uint64_t i = 0; i < count; ++i) {
      lists[rank].push_back(testing::gauss{1000.0}.value(rank, i));
    }
  }
  std::vector<float> wanted;
  for (std::size_t i = 0; i < count; ++i) {
    wanted.push_back((lists[0][i] + lists[1][i]) + lists[2][i]);
  }
  on_ranks(3, [&](threads& ranks) {
    auto const own = view_of(lists[static_cast<std::size_t>(ranks.rank())]);
    ranks.all_reduce(cpu{.threads = 1}, own, added, own);
  });
  CHECK(lists[0] == wanted);
  CHECK(lists[1] == wanted);
  CHECK(lists[2] == wanted);
}

TEST_CASE("elements of any trivially copyable type are gathered", "[host][threads]") {
  std::vector<std::vector<long_element>> found(3, std::vector<long_element>(6));
  on_ranks(3, [&](threads& ranks) {
    std::vector<long_element> own;
    for (int i = 0; i < 2; ++i) {
      own.push_back({ranks.rank(), 0.5 * i, static_cast<char>('a' + i)});
    }
    ranks.all_gather(cpu{.threads = 1}, view_of(own), view_of(found[static_cast<std::size_t>(ranks.rank())]));
  });
  for (auto const& list : found) {
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(list[i].number == static_cast<std::int64_t>(i / 2));
      CHECK(list[i].value == 0.5 * static_cast<double>(i % 2));
      CHECK(list[i].letter == (i % 2 == 0 ? 'a' : 'b'));
    }
  }
}

TEST_CASE("where one rank refuses a collective all fail and begin anew", "[host][threads]") {
  std::vector<float> sums(3);
  auto const said = messages(3, [&](threads& ranks) {
    std::vector<float> list(5);
    std::string refused;
    try {
      ranks.all_reduce(cpu{.threads = 1}, array_view<float const>(list.data(), ranks.rank() == 1 ? 4 : 5), added,
                       view_of(list));
    } catch (error const& thrown) {
      refused = thrown.what();
    }
    sums[static_cast<std::size_t>(ranks.rank())] = sum_of_ranks(ranks);
    throw std::runtime_error(refused);
  });
  CHECK(said[1] == "threads.all_reduce: the source has 4 elements but the target has 5");
  for (std::size_t other : {0U, 2U}) {
    CHECK(said[other] == "threads.all_reduce: rank 1 refused the call: " + said[1]);
  }
  CHECK(sums == std::vector<float>{6, 6, 6});
}

TEST_CASE("ranks that disagree in a collective all throw both values", "[host][threads]") {
  std::vector<float> floats(8);
  std::vector<double> doubles(8);
  cpu const exec{.threads = 1};
  auto const expect = [](std::vector<std::string> const& said, std::string const& wanted) {
    for (std::string const& one : said) {
      CHECK_THAT(one, contains(wanted));
    }
  };
  expect(messages(2,
                  [&](threads& ranks) {
                    std::vector<float> own(static_cast<std::size_t>(4 + ranks.rank()));
                    ranks.all_reduce(exec, view_of(own), added, view_of(own));
                  }),
         "rank 0 gives 4 elements (16 bytes in all) but rank 1 gives 5 (20)");
  expect(messages(2,
                  [&](threads& ranks) {
                    std::vector<float> own(4);
                    auto const reduction = ranks.rank() == 0 ? added : rank_reduction::minimum;
                    ranks.all_reduce(exec, view_of(own), reduction, view_of(own));
                  }),
         "rank 0 asks for reduction 0 but rank 1 for 2");
  expect(messages(2,
                  [&](threads& ranks) {
                    std::vector<float> four(4);
                    std::vector<std::int32_t> integers(4);
                    if (ranks.rank() == 0) {
                      ranks.all_reduce(exec, view_of(four), added, view_of(four));
                    } else {
                      ranks.all_reduce(exec, view_of(integers), added, view_of(integers));
                    }
                  }),
         "rank 0 gives elements of float but rank 1 of int32");
  expect(messages(2,
                  [&](threads& ranks) {
                    std::vector<float> own(4);
                    if (ranks.rank() == 0) {
                      ranks.all_reduce(exec, view_of(own), added, view_of(own));
                    } else {
                      ranks.all_gather(exec, array_view<float const>(own.data(), 2), view_of(own));
                    }
                  }),
         "rank 0 calls threads.all_reduce but rank 1 calls threads.all_gather");
  expect(messages(2,
                  [&](threads& ranks) {  // elements without a name, of different sizes
                    std::vector<std::uint16_t> shorts(4);
                    std::vector<std::uint8_t> bytes(4);
                    if (ranks.rank() == 0) {
                      ranks.all_gather(exec, array_view<std::uint16_t const>(shorts.data(), 2), view_of(shorts));
                    } else {
                      ranks.all_gather(exec, array_view<std::uint8_t const>(bytes.data(), 2), view_of(bytes));
                    }
                  }),
         "rank 0 gives 2 elements (8 bytes in all) but rank 1 gives 2 (4)");
}

TEST_CASE("who exchanges with a rank that refused a call learns why, until all meet", "[host][threads]") {
  std::vector<std::string> again(3);
  std::vector<float> sums(3);
  std::vector<float> received(3);
  auto const said = messages(3, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    auto const me = static_cast<std::size_t>(ranks.rank());
    float own = static_cast<float>(ranks.rank());
    array_view<float> const one(&own, 1);
    int const to = (ranks.rank() + 1) % 3;
    int const from = (ranks.rank() + 2) % 3;
    auto const go_round = [&](int target) {
      ranks.grouped([&] {
        ranks.send(exec, one, target);
        ranks.receive(exec, from, array_view<float>(&received[me], 1));
      });
    };
    std::string const first = message_of([&] { go_round(ranks.rank() == 1 ? 7 : to); });
    again[me] = message_of([&] { go_round(to); });
    sums[me] = sum_of_ranks(ranks);
    go_round(to);
    throw std::runtime_error(first);
  });
  std::string const refused = "threads.send: the other rank is 7 but there are 3";
  CHECK(said[1] == refused);
  CHECK(said[0] == "threads.send: rank 0 waits for rank 1, which refused a call: " + refused);
  CHECK(said[2] == "threads.receive: rank 2 waits for rank 1, which refused a call: " + refused);
  CHECK_THAT(again[1], contains("rank 1 exchanges with none before all ranks meet in a collective"));
  CHECK_THAT(again[1], contains(refused));
  CHECK_THAT(again[0], contains("rank 1, which refused a call"));
  CHECK_THAT(again[2], contains("rank 1, which refused a call"));
  CHECK(sums == std::vector<float>{6, 6, 6});
  CHECK(received == std::vector<float>{2, 0, 1});
}

TEST_CASE("who exchanges with a rank whose group throws learns what", "[host][threads]") {
  for (bool is_named : {true, false}) {
    auto const said = messages(2, [&](threads& ranks) {
      cpu const exec{.threads = 1};
      std::vector<float> list(3);
      std::vector<float> into(3);
      try {
        ranks.grouped([&] {
          ranks.send(exec, view_of(list), 1 - ranks.rank());
          if (ranks.rank() == 0 && is_named) {
            throw std::runtime_error("the file has no bias");
          } else if (ranks.rank() == 0) {
            throw 7;
          }
          ranks.receive(exec, 1 - ranks.rank(), view_of(into));
        });
      } catch (int seven) {
        throw std::runtime_error(std::to_string(seven));
      }
    });
    std::string const why = is_named ? "the file has no bias" : "what its grouped() called threw no std::exception";
    CHECK(said[0] == (is_named ? why : "7"));
    CHECK_THAT(said[1], contains("refused a call: " + why));  // rank 0 has left, too, if it was quick
  }
}

TEST_CASE("what a rank refused before it left is said with that", "[host][threads]") {
  std::vector<threads> ranks = threads::make(2);
  cpu const exec{.threads = 1};
  std::vector<float> list(2);
  CHECK_THROWS_AS(ranks[1].send(exec, view_of(list), 5), value_error);
  { threads const left = std::move(ranks[1]); }
  std::string const why =
      ", which has left the 2 ranks and refused a call: threads.send: the other rank is 5 but there are 2";
  CHECK(message_of([&] { ranks[0].receive(exec, 1, view_of(list)); }) ==
        "threads.receive: rank 0 waits for rank 1" + why);
  CHECK(message_of([&] { ranks[0].all_reduce(exec, view_of(list), added, view_of(list)); }) ==
        "threads.all_reduce: rank 0 waits for rank 1" + why);
}

TEST_CASE("sender and receiver throw where their lists differ, and stay in step", "[host][threads]") {
  std::vector<double> last(2);
  auto const said = messages(2, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    std::vector<double> list(4, ranks.rank() == 0 ? 3.0 : 0.0);
    std::vector<float> shorter(4);
    std::string found;
    if (ranks.rank() == 0) {
      found = message_of([&] { ranks.send(exec, view_of(list), 1); });
      found += message_of([&] { ranks.send(exec, view_of(list), 1); });
      ranks.send(exec, view_of(list), 1);
    } else {
      found = message_of([&] { ranks.receive(exec, 0, array_view<double>(list.data(), 3)); });
      found += message_of([&] { ranks.receive(exec, 0, view_of(shorter)); });
      ranks.receive(exec, 0, view_of(list));
    }
    last[static_cast<std::size_t>(ranks.rank())] = list[3];
    throw std::runtime_error(found);
  });
  for (std::string const& one : said) {
    CHECK_THAT(one, contains("rank 0 sends 4 elements of double (32 bytes) but rank 1 receives 3 of double (24"));
    CHECK_THAT(one, contains("rank 0 sends 4 elements of double (32 bytes) but rank 1 receives 4 of float (16"));
  }
  CHECK(last == std::vector<double>{3, 3});
}

TEST_CASE("who waits for a rank that has left throws, and names that one", "[host][threads]") {
  std::vector<threads> ranks = threads::make(3);
  cpu const exec{.threads = 1};
  std::vector<float> list(2);
  { threads const first = std::move(ranks[1]); }
  { threads const second = std::move(ranks[2]); }
  CHECK(message_of([&] { ranks[0].receive(exec, 1, view_of(list)); }) ==
        "threads.receive: rank 0 waits for rank 1, which has left the 3 ranks");
  CHECK(message_of([&] { ranks[0].send(exec, view_of(list), 2); }) ==
        "threads.send: rank 0 waits for rank 2, which has left the 3 ranks");
  for (int again = 0; again < 4; ++again) {  // more often than there are ranks
    CHECK(message_of([&] { ranks[0].all_reduce(exec, view_of(list), added, view_of(list)); }) ==
          "threads.all_reduce: rank 0 waits for rank 1, which has left the 3 ranks");
  }
}

TEST_CASE("who waits already when a rank leaves learns so, and the others go on exchanging", "[host][threads]") {
  std::vector<float> received(3);
  auto const said = messages(3, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    auto const me = static_cast<std::size_t>(ranks.rank());
    if (ranks.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return;
    }
    std::string const found = ranks.rank() == 0
                                  ? message_of([&] { ranks.receive(exec, 2, array_view<float>(&received[me], 1)); })
                                  : message_of([&] { sum_of_ranks(ranks); });
    float own = 4;
    if (ranks.rank() == 0) {
      ranks.send(exec, array_view<float>(&own, 1), 1);
    } else {
      ranks.receive(exec, 0, array_view<float>(&received[me], 1));
    }
    throw std::runtime_error(found);
  });
  CHECK(said[0] == "threads.receive: rank 0 waits for rank 2, which has left the 3 ranks");
  CHECK(said[1] == "threads.all_reduce: rank 1 waits for rank 2, which has left the 3 ranks");
  CHECK(received[1] == 4);
}

TEST_CASE("ranks that all wait for each other throw what each waits for, and begin anew", "[host][threads]") {
  constexpr int rounds = 50;
  std::vector<int> sums(3);
  auto const said = messages(3, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    std::string found;
    float list = 0;
    float other = 0;
    array_view<float> const one(&list, 1);
    for (int round = 0; round < rounds; ++round) {
      // A rank that wakes late must not count as one that waits again.
      found = ranks.rank() == 1 ? message_of([&] { ranks.receive(exec, 2, one); })
                                : message_of([&] { ranks.all_reduce(exec, one, added, one); });
      sums[static_cast<std::size_t>(ranks.rank())] += sum_of_ranks(ranks) == 6 ? 1 : 0;
      message_of([&] { ranks.send(exec, one, (ranks.rank() + 1) % 3); });  // nobody receives
      ranks.grouped([&] {
        ranks.send(exec, one, (ranks.rank() + 1) % 3);
        ranks.receive(exec, (ranks.rank() + 2) % 3, array_view<float>(&other, 1));
      });
    }
    throw std::runtime_error(found);
  });
  std::string const what = "rank 0 is in threads.all_reduce, rank 1 receives from 2, rank 2 is in threads.all_reduce";
  CHECK(said[0] == "threads.all_reduce: all ranks wait for each other: " + what);
  CHECK(said[1] == "threads.receive: all ranks wait for each other: " + what);
  CHECK(said[2] == said[0]);
  CHECK(sums == std::vector<int>(3, rounds));
}

TEST_CASE("a group receives in the order in which lists come", "[host][threads]") {
  std::vector<std::string> const none(3);
  std::vector<float> got(2);
  CHECK(messages(3, [&](threads& ranks) {
          cpu const exec{.threads = 1};
          float list = static_cast<float>(ranks.rank());
          array_view<float> const one(&list, 1);
          if (ranks.rank() == 0) {  // rank 1 sends only when rank 2 is done with rank 0
            ranks.grouped([&] {
              ranks.receive(exec, 1, array_view<float>(&got[0], 1));
              ranks.receive(exec, 2, array_view<float>(&got[1], 1));
            });
          } else if (ranks.rank() == 1) {
            float other = 0;
            ranks.receive(exec, 2, array_view<float>(&other, 1));
            ranks.send(exec, one, 0);
          } else {
            ranks.send(exec, one, 0);
            ranks.send(exec, one, 1);
          }
        }) == none);
  CHECK(got == std::vector<float>{1, 2});
}

TEST_CASE("groups may be empty and may stand in groups", "[host][threads]") {
  std::vector<float> list{1, 2};
  std::vector<float> into(2);
  on_ranks(1, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    ranks.grouped([] {});
    ranks.grouped([&] {
      ranks.grouped([&] { ranks.send(exec, view_of(list), 0); });
      ranks.receive(exec, 0, view_of(into));
    });
  });
  CHECK(into == list);
}

TEST_CASE("many exchanges and reductions of many ranks are those of one order", "[host][threads]") {
  constexpr int count = 8;
  std::vector<int> mistakes(count);
  on_ranks(count, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    int& wrong = mistakes[static_cast<std::size_t>(ranks.rank())];
    for (int round = 0; round < 60; ++round) {
      auto const part = static_cast<std::size_t>(round % 5);
      std::vector<std::int32_t> given(count * part, 100 * ranks.rank() + round);
      std::vector<std::int32_t> made(given.size());
      all_to_all(exec, ranks, view_of(given), view_of(made));
      for (std::size_t i = 0; i < made.size(); ++i) {
        wrong += made[i] != static_cast<std::int32_t>(100 * (i / part)) + round;
      }
      ranks.all_reduce(exec, view_of(given), added, view_of(given));
      wrong +=
          std::count(given.begin(), given.end(), 2800 + count * round) != static_cast<std::ptrdiff_t>(given.size());
    }
  });
  CHECK(mistakes == std::vector<int>(count));
}

TEST_CASE("with a dry executor ranks check arguments and exchange nothing", "[host]") {
  std::vector<threads> ranks = threads::make(2);
  cpu const dry{.options = {.is_dry = true}};
  std::vector<float> list{1, 2};
  std::vector<float> whole(4, 5);
  array_view<float> const planned(nullptr, 2);
  ranks[0].all_reduce(dry, view_of(list), added, planned);
  ranks[0].all_gather(dry, planned, view_of(whole));
  ranks[0].reduce_scatter(dry, view_of(whole), added, view_of(list));
  ranks[0].send(dry, view_of(list), 1);
  ranks[0].receive(dry, 1, planned);
  CHECK(list == std::vector<float>{1, 2});
  CHECK(whole == std::vector<float>(4, 5));
  CHECK_THROWS_AS(ranks[0].all_gather(dry, view_of(list), view_of(list)), shape_error);
  CHECK_THROWS_AS(ranks[0].send(dry, view_of(list), 2), value_error);
}

TEST_CASE("there is at least one rank", "[host]") {
  CHECK(message_of([] { static_cast<void>(threads::make(0)); }) ==
        "threads.make: there are 0 ranks but must be 1 or more");
  CHECK(threads::make(1).front().size() == 1);
}
