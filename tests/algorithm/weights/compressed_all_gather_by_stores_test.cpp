// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compressed_all_gather of ranks that store into each other's memory.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_all_gather.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/entropy/tans_coder.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/collective_runs.hpp"
#include "support/gather_runs.hpp"
#include "support/message_of.hpp"
#include "support/pretended_ranks.hpp"

using namespace tessera;
using namespace tessera_test;
using namespace compressed_all_gather_test;
using tessera::testing::on_ranks;

TEST_CASE("by stores compressed_all_gather gives all ranks the bits of all lists", "[host][threads]") {
  int const ranks = GENERATE(1, 2, 3, 8);
  std::uint64_t seed = 0;
  for (std::int64_t const count : {0, 1, 7, 2047, 2048, 8191, 8192, 8193, 65536, 100003}) {
    check_gathered<neuzip>(ranks, seed, count, small_stores());
    check_gathered<neuzip>(ranks, seed++, count, small_stores(), true);
  }
}

TEST_CASE("by stores compressed_all_gather takes all lossless codecs, chunks of many lengths, and checksums",
          "[host][threads]") {
  auto options = small_stores();
  for (std::int64_t const count : {7, 2049, 70001}) {
    check_gathered<neuzip_of<float16>>(3, 1, count, options);
    check_gathered<neuzip_of<float>>(3, 2, count, options);
    check_gathered<neuzip_fixed<bfloat16>>(3, 4, count, options);
    check_gathered<compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<7>>>(3, 5, count, options);
  }
  options.longest_bytes = 1 << 17;
  check_gathered<neuzip>(3, 1, 300007, options);
  options.checksums = true;
  check_gathered<neuzip>(3, 2, 300007, options);
  options.head_bytes = 0;
  options.checksums = false;
  check_gathered<neuzip>(2, 3, 300007, options);
}

TEST_CASE("by stores compressed_all_gather refuses damaged streams", "[host][threads]") {
  constexpr std::int64_t count = 40001;
  auto const lists = lists_of<bfloat16>(2, 0, count);
  auto options = small_stores();
  options.checksums = true;
  auto const layout = detail::message_layout<neuzip>::of("test", count, options);
  REQUIRE(layout.chunks == 5);
  auto const wanted = joined(lists);
  int in_padding = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    auto const chunk = static_cast<std::int64_t>(seed % 5);
    auto const random = testing::hash(seed, 1);
    std::int64_t const stream =
        neuzip::encode(cpu{.threads = 1}, layout.chunk_of(lists[0].view(), chunk), {.checksums = true}).size();
    std::int64_t const place =
        layout.stored_at(chunk) + static_cast<std::int64_t>(random % static_cast<std::uint64_t>(stream));
    // Heads, if there are any, come before the chunks, each as a message.
    int const comes_with = static_cast<int>(chunk) + (layout.head > 0 ? 1 : 0);
    auto const run = run_damaged(lists, options, [&](int message, int, array_view<std::byte> memory) {
      if (message == comes_with) {
        memory[place] ^= static_cast<std::byte>(1U << (random >> 61));
      }
    });
    INFO("chunk " << chunk << ": " << run.said[1]);
    in_padding += is_padding(run, layout, chunk, wanted) ? 1 : 0;
  }
  CHECK(in_padding < 5);
}

TEST_CASE("by stores compressed_all_gather is called again and again in one workspace", "[host][threads]") {
  using collective = compressed_all_gather<neuzip>;
  constexpr std::int64_t count = 20001;
  int const ranks_there = GENERATE(2, 3);
  on_ranks(ranks_there, [&](threads& ranks) {
    std::vector<bfloat16> all(static_cast<std::size_t>(ranks_there) * count);
    bool are_right = true;
    bool const is_sound = with_collective_space<collective>(
        [&](cpu const& exec) { return collective::plan(exec, ranks_there, count, small_stores()); },
        [&](cpu const& exec, side_queue<cpu> const& wire, workspace const& space) {
          for (std::uint64_t time = 0; time < 10; ++time) {
            auto const lists = lists_of<bfloat16>(ranks_there, time, count);
            auto const& own = lists[static_cast<std::size_t>(ranks.rank())];
            collective::exchange(exec, wire, ranks, own.view(), all, small_stores(), space);
            are_right = are_right && same_bits(all, joined(lists));
          }
          exec.wait();
        });
    if (!are_right || !is_sound) {
      throw std::runtime_error("rank " + std::to_string(ranks.rank()) + " got other lists");
    }
  });
}

TEST_CASE("by stores compressed_all_gather sends what its streams need", "[host][threads]") {
  constexpr std::int64_t count = 150001;
  std::vector<weight_array<bfloat16>> lists;
  lists.emplace_back(weight_kind::gauss, 0, count);
  lists.emplace_back(weight_kind::random_bits, 1, count);
  auto const found = gather_lists<neuzip>(lists, small_stores());
  auto const by_messages = gather_lists<neuzip>(lists, small_messages());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(found[rank].traffic.sent == found[rank].traffic.needed);
    CHECK(found[rank].traffic.needed == by_messages[rank].traffic.needed);
  }
  auto const plain = gather_lists<neuzip>(lists, compressed_collective_options::for_peer_memory());
  CHECK(plain[0].traffic.sent == plain[0].traffic.weights);  // fewer bytes than smallest_bytes
  CHECK(same_bits(plain[1].all, joined(lists)));
}

TEST_CASE("compressed_all_gather by stores needs ranks that share memory", "[host]") {
  using collective = compressed_all_gather<neuzip>;
  std::vector<bfloat16> own(40001);
  std::vector<bfloat16> all(2 * 40001);
  mirrored_ranks<cpu> ranks(0, 2);
  static_assert(!PeerCommunicator<mirrored_ranks<cpu>, cpu>);
  with_collective_space<collective>(
      [&](cpu const& exec) { return collective::plan(exec, 2, 40001, small_stores()); },
      [&](cpu const& exec, side_queue<cpu> const& wire, workspace const& space) {
        CHECK(message_of([&] { collective::exchange(exec, wire, ranks, own, all, small_stores(), space); }) ==
              "compressed_all_gather.exchange: stores_to_peers is 1 but the ranks are no PeerCommunicator");
      });
}
