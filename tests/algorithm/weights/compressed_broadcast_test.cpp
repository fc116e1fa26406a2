// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_broadcast.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/collective_runs.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::on_ranks;

namespace compressed_broadcast_test {

/// What a rank has found.
template <class T>
struct found_by_rank {
  weight_array<T> list{0};
  compressed_traffic traffic;
  std::string said;
  bool is_sound = false;
};

/// What all ranks have after the broadcast of a list, and what they say.
template <class Codec>
std::vector<found_by_rank<typename Codec::value_type>> broadcast(int count, int root,
                                                                 weight_array<typename Codec::value_type> const& list,
                                                                 compressed_collective_options const& options,
                                                                 damaged_rank const& damaged = {}) {
  using collective = compressed_broadcast<Codec>;
  using type = typename Codec::value_type;
  std::vector<found_by_rank<type>> found(static_cast<std::size_t>(count));
  on_ranks(count, [&](threads& sound_ranks) {
    int const rank = sound_ranks.rank();
    damaging_ranks ranks(sound_ranks, rank == damaged.rank ? damaged.damage : damaged_rank{}.damage);
    auto& own = found[static_cast<std::size_t>(rank)];
    own.list = weight_array<type>(list.count());
    own.list.fill_with_rubbish();
    if (rank == root) {
      std::memcpy(static_cast<void*>(own.list.data()), list.data(), list.size() * sizeof(type));
    }
    own.is_sound = with_collective_space<collective>(
        [&](cpu const& exec) { return collective::plan(exec, count, list.count(), options); },
        [&](cpu const& exec, side_queue<cpu> const& wire, workspace const& space) {
          own.said = message_of([&] {
            own.traffic = collective::exchange(exec, wire, ranks, root, own.list.view(), options, space);
            exec.wait();
          });
        });
  });
  return found;
}

template <class Codec>
void check_broadcast(int ranks, int root, weight_array<typename Codec::value_type> const& list,
                     compressed_collective_options const& options) {
  INFO(ranks << " ranks, root " << root << ", " << list.count() << " weights");
  for (auto const& of_rank : broadcast<Codec>(ranks, root, list, options)) {
    CHECK(of_rank.said.empty());
    CHECK(of_rank.list == list);
    CHECK(of_rank.is_sound);
  }
}

}  // namespace compressed_broadcast_test

using namespace compressed_broadcast_test;

TEST_CASE("compressed_broadcast gives all ranks the bits of root's list", "[host][threads]") {
  int const ranks = GENERATE(1, 2, 3, 8);
  int seed = 0;
  for (std::int64_t const count : {0, 1, 7, 2047, 2048, 8191, 8192, 8193, 65536, 100003}) {
    int const root = seed++ % ranks;
    check_broadcast<neuzip>(ranks, root, weights_of_rank<bfloat16>(0, static_cast<std::uint64_t>(seed), count),
                            small_messages());
  }
}

TEST_CASE("compressed_broadcast takes all lossless codecs and types", "[host][threads]") {
  for (std::int64_t const count : {7, 2049, 70001}) {
    check_broadcast<neuzip_of<float16>>(3, 2, weights_of_rank<float16>(0, 0, count), small_messages());
    check_broadcast<neuzip_of<float>>(3, 1, weights_of_rank<float>(0, 1, count), small_messages());
    check_broadcast<neuzip_of<float8_e5m2>>(3, 0, weights_of_rank<float8_e5m2>(0, 2, count), small_messages());
    check_broadcast<neuzip_fixed<bfloat16>>(3, 2, weights_of_rank<bfloat16>(0, 3, count), small_messages());
  }
}

TEST_CASE("compressed_broadcast hands tails on, and sends no more than it needs", "[host][threads]") {
  constexpr std::int64_t count = 150001;
  weight_array<bfloat16> const easy(weight_kind::gauss, 1, count);
  weight_array<bfloat16> const hard(weight_kind::random_bits, 1, count);
  auto options = small_messages();
  auto const usual = broadcast<neuzip>(2, 0, easy, options)[1].traffic;
  CHECK(sent_share(usual) < 0.79);
  CHECK(usual.needed < usual.sent);
  options.body_bits = 9.0F;
  for (int const ranks : {2, 4}) {
    check_broadcast<neuzip>(ranks, 1, easy, options);
    check_broadcast<neuzip>(ranks, 1, hard, options);
    check_broadcast<neuzip>(ranks, 1, weight_array<bfloat16>(weight_kind::mixture, 1, count), options);
  }
  auto const tails = broadcast<neuzip>(2, 0, easy, options)[1].traffic;
  auto const layout = detail::message_layout<neuzip>::of("test", count, options);
  std::int64_t twice = 0;  // what bodies and tails both bring
  for (std::int64_t i = 0; i < layout.chunks; ++i) {
    twice += layout.stream_part(i) - layout.tail_begin(i);
  }
  CHECK(tails.sent == usual.needed + twice + layout.table_bytes());
  options.checksums = true;
  check_broadcast<neuzip>(3, 2, easy, options);
  check_broadcast<neuzip>(3, 2, easy, {});  // fewer bytes than smallest_bytes
}

TEST_CASE("damage in a chain is refused by all ranks behind it", "[host][threads]") {
  weight_array<bfloat16> const list(weight_kind::gauss, 1, 40001);
  auto options = small_messages();
  options.checksums = true;
  auto const layout = detail::message_layout<neuzip>::of("test", list.count(), options);
  REQUIRE(layout.chunks == 5);
  for (int const chunk : {0, 1, 2, 4}) {
    int from_rank = -1;
    auto const damage = [&](int message, int from, array_view<std::byte> bytes) {
      if (message == chunk) {
        from_rank = from;
        bytes[layout.table_before(chunk) + 3000] ^= std::byte{4};
      }
    };
    auto const found = broadcast<neuzip>(4, 3, list, options, {0, damage});
    CHECK(from_rank == 3);
    CHECK(found[3].said.empty());
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK_THAT(found[rank].said, contains("compressed_weights.decode: "));
      CHECK(found[rank].is_sound);
    }
  }
  auto const late = broadcast<neuzip>(4, 0, list, options, {2, [](int message, int, array_view<std::byte> bytes) {
                                                              if (message == 1) {
                                                                bytes[3000] ^= std::byte{4};
                                                              }
                                                            }});
  CHECK(late[1].said.empty());
  CHECK(late[1].list == list);
  CHECK_THAT(late[2].said, contains("compressed_weights.decode: "));
  CHECK_THAT(late[3].said, contains("compressed_weights.decode: "));
}

TEST_CASE("a table of sizes that cannot be is refused at once", "[host][threads]") {
  weight_array<bfloat16> const list(weight_kind::gauss, 1, 40001);
  std::int64_t const size = std::int64_t{1} << 50;
  auto const found =
      broadcast<neuzip>(2, 0, list, small_messages(), {1, [&](int message, int, array_view<std::byte> bytes) {
                                                         if (message == 3) {  // the head, two bodies, then the table
                                                           std::memcpy(bytes.data, &size, sizeof size);
                                                         }
                                                       }});
  CHECK(found[0].said.empty());
  CHECK_THAT(found[1].said, contains("compressed_broadcast.exchange: chunk 0 of rank 0 has 1125899906842624 bytes, as "
                                     "the rank's message says, but can have from "));
  CHECK(found[1].is_sound);
}

TEST_CASE("compressed_broadcast refuses what does not fit", "[host][threads]") {
  using collective = compressed_broadcast<neuzip>;
  cpu const exec{.threads = 1};
  side_queue<cpu> const wire(exec, collective::side_marks, true);
  loopback ranks;
  workspace_plan const plan = collective::plan(exec, 1, 8);
  guarded_block block(plan.bytes());
  workspace const space(plan, block.view());
  std::vector<bfloat16> list(8);
  auto const said = [&](int root, array_view<bfloat16> given, compressed_collective_options const& options = {}) {
    return message_of([&] { collective::exchange(exec, wire, ranks, root, given, options, space); });
  };
  CHECK(said(0, list).empty());
  CHECK(said(1, list) == "compressed_broadcast.exchange: root is 1 but there are 1 ranks");
  CHECK(said(-1, list) == "compressed_broadcast.exchange: root is -1 but there are 1 ranks");
  CHECK(said(0, {list.data(), {4}, {2}}) ==
        "compressed_broadcast.exchange: the list has a stride of 2 but must have a stride of 1");
  CHECK(said(0, list, {.chunk_bytes = -1}) ==
        "compressed_broadcast.exchange: chunk_bytes is -1 but must be at least 1");
  CHECK(said(0, list, {.stores_to_peers = true}) ==
        "compressed_broadcast.exchange: stores_to_peers is 1 but must be 0");
  std::string of_rank[3];
  on_ranks(3, [&](threads& several) {
    weight_array<bfloat16> own(weight_kind::gauss, 1, several.rank() == 2 ? 40000 : 40001);
    with_collective_space<collective>(
        [&](cpu const& own_exec) { return collective::plan(own_exec, 3, own.count(), small_messages()); },
        [&](cpu const& own_exec, side_queue<cpu> const& own_wire, workspace const& own_space) {
          of_rank[several.rank()] = message_of(
              [&] { collective::exchange(own_exec, own_wire, several, 0, own.view(), small_messages(), own_space); });
        });
  });
  for (std::string const& text : of_rank) {
    CHECK(text == "compressed_broadcast.exchange: rank 0 gives 40001 weights but rank 2 gives 40000");
  }
}

TEST_CASE("explain() of compressed_broadcast exchanges nothing", "[host]") {
  using collective = compressed_broadcast<neuzip>;
  cpu const exec{.threads = 1};
  on_ranks(2, [&](threads& ranks) {
    if (ranks.rank() == 1) {
      return;  // and is not missed
    }
    std::vector<bfloat16> list(40001, from_bits<bfloat16>(0x55));
    workspace_plan const plan = collective::plan(exec, 2, 40001, small_messages());
    guarded_block block(plan.bytes());
    workspace const space(plan, block.view());
    CHECK(explain(exec, [&](auto const& dry) {
            side_queue<cpu> const wire(dry, collective::side_marks, true);
            collective::exchange(dry, wire, ranks, 1, list, small_messages(), space);
          }).is_fast());
    CHECK(list.back().bits == 0x55);
  });
}
