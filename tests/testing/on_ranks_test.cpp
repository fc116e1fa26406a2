// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera::testing::on_ranks;
using tessera_test::message_of;

TEST_CASE("on_ranks calls a function on every rank in a thread of its own", "[host][threads]") {
  std::vector<std::thread::id> ids(5);
  std::vector<int> sizes(5);
  on_ranks(5, [&](threads& ranks) {
    ids[static_cast<std::size_t>(ranks.rank())] = std::this_thread::get_id();
    sizes[static_cast<std::size_t>(ranks.rank())] = ranks.size();
    float own = 1;
    ranks.all_reduce(cpu{.threads = 1}, array_view<float const>(&own, 1), rank_reduction::sum,
                     array_view<float>(&own, 1));  // all of them run at the same time
  });
  CHECK(std::set<std::thread::id>(ids.begin(), ids.end()).size() == 5);
  CHECK(sizes == std::vector<int>(5, 5));
}

TEST_CASE("on_ranks throws what the first rank threw, and no rank waits for it", "[host][threads]") {
  std::vector<std::string> said(3);
  auto const call = [&] {
    on_ranks(3, [&](threads& ranks) {
      if (ranks.rank() == 1) {
        throw std::runtime_error("no second half");
      }
      float own = 1;
      said[static_cast<std::size_t>(ranks.rank())] = message_of([&] {
        ranks.all_reduce(cpu{.threads = 1}, array_view<float const>(&own, 1), rank_reduction::sum,
                         array_view<float>(&own, 1));
      });
      if (ranks.rank() == 2) {
        throw std::runtime_error("the third one");
      }
    });
  };
  CHECK(message_of(call) == "no second half");
  CHECK(said[0] == "threads.all_reduce: rank 0 waits for rank 1, which has left the 3 ranks");
}

TEST_CASE("on_ranks wants at least one rank", "[host]") {
  CHECK_THROWS_AS(on_ranks(0, [](threads&) {}), value_error);
}
