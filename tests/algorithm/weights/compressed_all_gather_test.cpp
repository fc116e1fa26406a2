// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_all_gather.hpp>
#include <tessera/algorithm/weights/inspect_weight_stream.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/entropy/tans_coder.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/collective_runs.hpp"
#include "support/gather_runs.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::on_ranks;

using namespace compressed_all_gather_test;

TEST_CASE("compressed_all_gather gives all ranks the bits of all lists", "[host][threads]") {
  int const ranks = GENERATE(1, 2, 3, 8);
  auto options = small_messages();
  options.sends_to_each = GENERATE(false, true);
  std::uint64_t seed = 0;
  for (std::int64_t const count : {0, 1, 7, 2047, 2048, 8191, 8192, 8193, 65536, 100003}) {
    check_gathered<neuzip>(ranks, seed++, count, options);
  }
}

TEST_CASE("compressed_all_gather takes chunks of many lengths", "[host][threads]") {
  auto options = small_messages();
  options.longest_bytes = 1 << 17;
  for (bool const sends_to_each : {false, true}) {
    options.sends_to_each = sends_to_each;
    options.body_bits = 0;
    check_gathered<neuzip>(3, 1, 300007, options);
    check_gathered<neuzip>(2, 4, 300007, options, true);
    options.body_bits = 9.5F;  // all chunks have tails
    check_gathered<neuzip>(3, 1, 300007, options);
    check_gathered<neuzip>(2, 4, 300007, options, true);
    options.spared_multiprocessors = 1000;
  }
}

TEST_CASE("compressed_all_gather takes as many chunks as there may be", "[host][threads]") {
  check_gathered<neuzip>(2, 0, 278528, small_messages());
  check_gathered<neuzip>(2, 0, 278529, small_messages());
}

TEST_CASE("compressed_all_gather takes all lossless codecs and types", "[host][threads]") {
  for (std::int64_t const count : {7, 2049, 70001}) {
    check_gathered<neuzip_of<float16>>(3, 1, count, small_messages());
    check_gathered<neuzip_of<float>>(3, 2, count, small_messages());
    check_gathered<neuzip_of<float8_e4m3>>(3, 3, count, small_messages());
    check_gathered<neuzip_fixed<bfloat16>>(3, 4, count, small_messages());
    check_gathered<compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<7>>>(3, 5, count,
                                                                                               small_messages());
  }
}

TEST_CASE("compressed_all_gather takes a part of its target as the own list", "[host][threads]") {
  check_gathered<neuzip>(3, 0, 100003, small_messages(), true);
  check_gathered<neuzip>(2, 0, 100003, {}, true);
}

TEST_CASE("compressed_all_gather sends what its options say", "[host][threads]") {
  constexpr std::int64_t count = 150001;
  std::vector<weight_array<bfloat16>> easy;
  std::vector<weight_array<bfloat16>> hard;
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    easy.emplace_back(weight_kind::gauss, rank, count);
    hard.emplace_back(rank == 0 ? weight_kind::gauss : weight_kind::random_bits, rank, count);
  }
  auto options = small_messages();
  auto const usual = gather_lists<neuzip>(easy, options)[0];
  CHECK(same_bits(usual.all, joined(easy)));
  CHECK(sent_share(usual.traffic) < 0.79);
  CHECK(usual.traffic.needed < usual.traffic.sent);
  CHECK(3 * usual.traffic.needed > 2 * usual.traffic.weights);
  options.body_bits = 9.0F;  // nothing fits: all chunks have tails
  auto const tails = gather_lists<neuzip>(easy, options);
  CHECK(same_bits(tails[0].all, joined(easy)));
  CHECK(same_bits(tails[1].all, joined(easy)));
  CHECK(tails[0].traffic.needed == usual.traffic.needed);
  auto const layout = detail::message_layout<neuzip>::of("test", count, options);
  std::int64_t twice = 0;  // what bodies and tails both bring
  for (std::int64_t i = 0; i < layout.chunks; ++i) {
    twice += layout.stream_part(i) - layout.tail_begin(i);
  }
  CHECK(tails[0].traffic.sent == tails[0].traffic.needed + twice + layout.table_bytes());
  options.body_bits = 16.0F;
  CHECK(gather_lists<neuzip>(easy, options)[1].traffic.sent > usual.traffic.weights);
  options.body_bits = 0;
  auto const mixed = gather_lists<neuzip>(hard, options);
  CHECK(same_bits(mixed[0].all, joined(hard)));
  CHECK(same_bits(mixed[1].all, joined(hard)));
  CHECK(sent_share(mixed[0].traffic) < 0.79);
  CHECK(mixed[1].traffic.sent > mixed[1].traffic.weights);
  options.chunk_bytes = options.longest_bytes = 1 << 17;
  CHECK(sent_share(gather_lists<neuzip>(hard, options)[1].traffic) < 1.14);
  auto slow = compressed_collective_options::for_slow_wires();
  CHECK(gather_lists<neuzip>(easy, slow)[0].traffic.sent == usual.traffic.weights);
  slow.smallest_bytes = 1 << 18;
  auto const of_slow = gather_lists<neuzip>(easy, slow);
  CHECK(same_bits(of_slow[1].all, joined(easy)));
  CHECK(sent_share(of_slow[1].traffic) < 0.79);
  auto const plain = gather_lists<neuzip>(easy, {})[0];
  CHECK(same_bits(plain.all, joined(easy)));
  CHECK(plain.traffic.sent == plain.traffic.weights);  // fewer bytes than smallest_bytes
}

TEST_CASE("with checksums compressed_all_gather refuses any damage, on the rank that received it", "[host][threads]") {
  constexpr std::int64_t count = 40001;
  auto const lists = lists_of<bfloat16>(2, 0, count);
  auto options = small_messages();
  options.checksums = true;
  detail::message_layout<neuzip> const layout = detail::message_layout<neuzip>::of("test", count, options);
  REQUIRE(layout.chunks == 5);
  REQUIRE(layout.head == 0);
  auto const sound = run_damaged(lists, options, [](int, int, array_view<std::byte>) {});
  CHECK(sound.said[0].empty());
  CHECK(sound.said[1].empty());
  CHECK(same_bits(sound.all[1], joined(lists)));
  int in_padding = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    auto const chunk = static_cast<std::int64_t>(seed % 5);
    auto const random = testing::hash(seed, 1);
    std::int64_t const first = layout.table_before(chunk);
    std::int64_t const stream =
        neuzip::encode(cpu{.threads = 1}, layout.chunk_of(lists[0].view(), chunk), {.checksums = true}).size();
    std::int64_t const place = first + static_cast<std::int64_t>(random % static_cast<std::uint64_t>(stream));
    auto const run = run_damaged(lists, options, [&](int message, int, array_view<std::byte> bytes) {
      if (message == chunk) {
        bytes[place] ^= static_cast<std::byte>(1U << (random >> 61));
      }
    });
    INFO("chunk " << chunk << ", byte " << place - first << " of " << stream << ": " << run.said[1]);
    in_padding += is_padding(run, layout, chunk, joined(lists)) ? 1 : 0;
  }
  CHECK(in_padding < 5);
}

TEST_CASE("without checksums compressed_all_gather refuses headers and tables that are wrong", "[host][threads]") {
  constexpr std::int64_t count = 40001;
  auto const lists = lists_of<bfloat16>(2, 0, count);
  auto const options = small_messages();
  auto const layout = detail::message_layout<neuzip>::of("test", count, options);
  REQUIRE(layout.chunks == 4);
  REQUIRE(layout.head == 8192);
  REQUIRE(layout.table_chunk == 2);
  for (std::int64_t byte = 0; byte < 64; ++byte) {
    auto const run = run_damaged(lists, options, [&](int message, int, array_view<std::byte> bytes) {
      if (message == 1) {
        bytes[byte] ^= std::byte{0x10};
      }
    });
    CHECK_THAT(run.said[1], contains("compressed_weights.decode: the header contradicts itself (code "));
    CHECK(run.said[0].empty());
    CHECK(run.is_sound[1]);
  }
  for (std::int64_t const size : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{8000}, std::int64_t{1} << 40}) {
    auto const run = run_damaged(lists, options, [&](int message, int, array_view<std::byte> bytes) {
      if (message == 2) {
        std::memcpy(bytes.data + 8, &size, sizeof size);
      }
    });
    CHECK_THAT(run.said[1], contains("compressed_all_gather.exchange: chunk 1 of rank 0 has " + std::to_string(size) +
                                     " bytes, as the rank's message says, but can have from "));
    CHECK(run.said[0].empty());
    CHECK(same_bits(run.all[0], joined(lists)));
    CHECK(run.is_sound[1]);
  }
  for (std::int64_t const more : {-16, 16, 16000}) {  // possible, but not what was sent: one has a tail, or is cut
    auto const run = run_damaged(lists, options, [&](int message, int, array_view<std::byte> bytes) {
      if (message == 2) {
        std::int64_t size = 0;
        std::memcpy(&size, bytes.data, sizeof size);
        size += more;
        std::memcpy(bytes.data, &size, sizeof size);
      }
    });
    CHECK_THAT(run.said[1], contains("compressed_all_gather.exchange: "));
    CHECK(run.said[0].empty());
    CHECK(run.is_sound[1]);
    if (more != 16000) {
      CHECK_THAT(run.said[1], contains("the sizes of the streams of rank 0 have the checksum "));
    }
  }
}

TEST_CASE("where tails are damaged compressed_all_gather says so", "[host][threads]") {
  auto const lists = lists_of<bfloat16>(2, 0, 40001);
  auto options = small_messages();
  options.body_bits = 9.0F;
  options.checksums = true;
  int tails = 0;
  auto const run = run_damaged(lists, options, [&](int message, int, array_view<std::byte> bytes) {
    if (message >= 5) {  // after the bodies of five chunks
      ++tails;
      bytes[bytes.size() / 2] ^= std::byte{1};
    }
  });
  CHECK(tails == 5);
  CHECK_THAT(run.said[1], contains("compressed_weights.decode: "));
  CHECK(run.said[0].empty());
  CHECK(run.is_sound[1]);
}

TEST_CASE("what programs reported before compressed_all_gather is thrown after it", "[host][threads]") {
  using collective = compressed_all_gather<neuzip>;
  auto const lists = lists_of<bfloat16>(2, 0, 40001);
  std::vector<bfloat16> all[2];
  std::string said[2];
  on_ranks(2, [&](threads& ranks) {
    int const rank = ranks.rank();
    all[rank].resize(2 * 40001);
    with_collective_space<collective>(
        [&](cpu const& exec) { return collective::plan(exec, 2, 40001, small_messages()); },
        [&](cpu const& exec, side_queue<cpu> const& wire, workspace const& space) {
          if (rank == 1) {
            detail::report_on_host(exec.status({"earlier_call", "thing"}), status_code::bad_value, 17);
          }
          said[rank] = message_of([&] {
            collective::exchange(exec, wire, ranks, lists[static_cast<std::size_t>(rank)].view(), all[rank],
                                 small_messages(), space);
          });
          exec.wait();
        });
  });
  CHECK(said[0].empty());
  CHECK_THAT(said[1], contains("earlier_call: a value is outside of what is accepted"));
  CHECK(same_bits(all[0], joined(lists)));
  CHECK(same_bits(all[1], joined(lists)));
}

TEST_CASE("compressed_all_gather refuses what does not fit", "[host]") {
  using collective = compressed_all_gather<neuzip>;
  cpu const exec{.threads = 1};
  side_queue<cpu> const wire(exec, collective::side_marks, true);
  loopback ranks;
  workspace_plan const plan = collective::plan(exec, 1, 8);
  guarded_block block(plan.bytes());
  workspace const space(plan, block.view());
  std::vector<bfloat16> list(16);
  array_view<bfloat16> const whole = list;
  auto const said = [&](array_view<bfloat16 const> own, array_view<bfloat16> all,
                        compressed_collective_options const& options = {}) {
    return message_of([&] { collective::exchange(exec, wire, ranks, own, all, options, space); });
  };
  CHECK(said(whole.slice(0, 0, 8), whole) ==
        "compressed_all_gather.exchange: the own list has 8 elements for each of 1 ranks, which is 8, but the list for "
        "all has 16");
  CHECK(said({list.data(), {8}, {2}}, whole.slice(0, 0, 8)) ==
        "compressed_all_gather.exchange: the own list has a stride of 2 but must have a stride of 1");
  CHECK(said({nullptr, 8}, whole.slice(0, 0, 8)) ==
        "compressed_all_gather.exchange: the own list has no memory but 8 elements");
  CHECK(said(whole, whole, {.head_bytes = -1}) ==
        "compressed_all_gather.exchange: head_bytes is -1 but must be at least 0");
  CHECK(said(whole, whole, {.chunk_bytes = 0}) ==
        "compressed_all_gather.exchange: chunk_bytes is 0 but must be at least 1");
  CHECK(said(whole, whole, {.longest_bytes = 0}) ==
        "compressed_all_gather.exchange: longest_bytes is 0 but must be at least 1");
  CHECK(said(whole, whole, {.spared_multiprocessors = -1}) ==
        "compressed_all_gather.exchange: spared_multiprocessors is -1 but must be at least 0");
  CHECK(said(whole, whole, {.smallest_bytes = -4}) ==
        "compressed_all_gather.exchange: smallest_bytes is -4 but must be at least 0");
  CHECK_THAT(said(whole, whole, {.body_bits = 17.0F}),
             contains("body_bits is 17.000000 but must be at least 0 and at most 16"));
  CHECK_THAT(said(whole, whole, {.body_bits = NAN}), contains("body_bits is nan but must be at least 0"));
  CHECK_THAT(message_of([&] { static_cast<void>(collective::plan(exec, 0, 8)); }),
             contains("compressed_all_gather.exchange: there are 0 ranks but must be 1 or more"));
  CHECK_THAT(message_of([&] { static_cast<void>(collective::plan(exec, 2, -8)); }),
             contains("compressed_all_gather.exchange: the number of weights is -8 but must be at least 0"));
  CHECK_THAT(message_of([&] { static_cast<void>(collective::plan(exec, 2, (std::int64_t{1} << 35) + 1)); }),
             contains("the number of weights is 34359738369 but must be at least 0 and at most 34359738368"));
}

TEST_CASE("compressed_all_gather says which workspace is too small", "[host][threads]") {
  using collective = compressed_all_gather<neuzip>;
  auto const lists = lists_of<bfloat16>(2, 0, 40001);
  std::string said[2];
  on_ranks(2, [&](threads& ranks) {
    int const rank = ranks.rank();
    std::vector<bfloat16> all(2 * 40001);
    with_collective_space<collective>(
        [&](cpu const& exec) { return collective::plan(exec, 2, 20000, small_messages()); },
        [&](cpu const& exec, side_queue<cpu> const& wire, workspace const& space) {
          said[rank] = message_of([&] {
            collective::exchange(exec, wire, ranks, lists[static_cast<std::size_t>(rank)].view(), all, small_messages(),
                                 space);
          });
        });
  });
  CHECK_THAT(said[0], contains("compressed_all_gather.exchange: the workspace is of a plan of "));
  CHECK_THAT(said[0], contains(" bytes but 2 ranks with 40001 weights need "));
  CHECK(said[1] == said[0]);
}

TEST_CASE("where ranks give lists of different sizes all of them learn it", "[host][threads]") {
  using collective = compressed_all_gather<neuzip>;
  for (std::int64_t const other : {0, 7, 30000, 40000, 40002}) {
    std::string said[2];
    on_ranks(2, [&](threads& ranks) {
      int const rank = ranks.rank();
      weight_array<bfloat16> const own(weight_kind::gauss, 1, rank == 0 ? 40001 : other);
      std::vector<bfloat16> all(2 * own.size());
      with_collective_space<collective>(
          [&](cpu const& exec) { return collective::plan(exec, 2, own.count(), small_messages()); },
          [&](cpu const& exec, side_queue<cpu> const& wire, workspace const& space) {
            said[rank] =
                message_of([&] { collective::exchange(exec, wire, ranks, own.view(), all, small_messages(), space); });
          });
    });
    INFO(other << ": " << said[0] << " | " << said[1]);
    CHECK(said[0] ==
          "compressed_all_gather.exchange: rank 0 gives 40001 weights but rank 1 gives " + std::to_string(other));
    CHECK(said[1] == said[0]);
  }
}

TEST_CASE("explain() of compressed_all_gather exchanges nothing", "[host]") {
  using collective = compressed_all_gather<neuzip>;
  cpu const exec{.threads = 1};
  auto const options = GENERATE(small_messages(), small_stores());
  on_ranks(2, [&](threads& ranks) {
    if (ranks.rank() == 1) {
      return;  // and is not missed
    }
    std::vector<bfloat16> own(40001);
    std::vector<bfloat16> all(2 * 40001, from_bits<bfloat16>(0x55));
    workspace_plan const plan = collective::plan(exec, 2, 40001, options);
    guarded_block block(plan.bytes());
    workspace const space(plan, block.view());
    CHECK(explain(exec, [&](auto const& dry) {
            side_queue<cpu> const wire(dry, collective::side_marks, true);
            collective::exchange(dry, wire, ranks, own, all, options, space);
          }).is_fast());
    CHECK(all.back().bits == 0x55);
  });
}
