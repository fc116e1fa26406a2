// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_reduce_scatter.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/program/weights/detail/rank_messages.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/collective_runs.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::on_ranks;

namespace compressed_reduce_scatter_test {

/// What a rank has found.
template <class T>
struct found_by_rank {
  std::vector<T> part;
  std::vector<T> of_communicator;  ///< what the communicator's own reduce_scatter gives
  compressed_traffic traffic;
  std::string said;
  bool is_sound = false;
};

/// One of 16384 normal numbers: to draw another one for each of millions of gradients would take longer than to
/// compress them and to add them up.
inline float normal_number(std::uint64_t random) {
  static std::vector<float> const numbers = [] {
    std::vector<float> drawn(1U << 14);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      drawn[i] = testing::gauss{}.value(11, i);
    }
    return drawn;
  }();
  return numbers[random >> 50];
}

/// Gradients of a rank: numbers that add up without infinities, and a few that are none.
template <class T>
std::vector<T> gradients_of(int rank, std::uint64_t seed, std::int64_t count) {
  std::vector<T> list;
  list.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    auto const index = static_cast<std::uint64_t>(i);
    auto const own = seed + 77 * static_cast<std::uint64_t>(rank);
    std::uint64_t const random = testing::hash(own, index);
    float const scale = random % 500 == 0 ? 40.0F : 0.01F;
    list.push_back(store<T>(scale * normal_number(random)));
    if (testing::hash(own + 1, index) % 3000 == 0) {
      list.back() =
          store<T>(index % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN());
    }
  }
  return list;
}

template <class Codec>
using lists_of = std::vector<std::vector<typename Codec::value_type>>;

template <class Codec>
std::vector<found_by_rank<typename Codec::value_type>> reduced(lists_of<Codec> const& lists,
                                                               compressed_collective_options const& options,
                                                               bool is_in_place = false,
                                                               damaged_rank const& damaged = {}) {
  using collective = compressed_reduce_scatter<Codec>;
  using type = typename Codec::value_type;
  auto const count = static_cast<int>(lists.size());
  std::vector<found_by_rank<type>> found(lists.size());
  on_ranks(count, [&](threads& sound_ranks) {
    int const rank = sound_ranks.rank();
    damaging_ranks ranks(sound_ranks, rank == damaged.rank ? damaged.damage : damaged_rank{}.damage);
    auto& own = found[static_cast<std::size_t>(rank)];
    auto all = lists[static_cast<std::size_t>(rank)];
    auto const size = static_cast<std::int64_t>(all.size()) / count;
    own.part.assign(static_cast<std::size_t>(size), from_bits<type>(0x55));
    own.of_communicator = own.part;
    cpu const exec{.threads = 1};
    sound_ranks.reduce_scatter(exec, array_view<type const>(all), rank_reduction::sum,
                               array_view<type>(own.of_communicator));
    array_view<type> const whole = all;
    array_view<type> const part = is_in_place ? whole.slice(0, rank * size, size) : array_view<type>(own.part);
    own.is_sound = with_collective_space<collective>(
        [&](cpu const& of) { return collective::plan(of, count, size, options); },
        [&](cpu const& of, side_queue<cpu> const& wire, workspace const& space) {
          own.said = message_of([&] {
            own.traffic = collective::exchange(of, wire, ranks, whole, part, options, space);
            of.wait();
          });
        });
    if (is_in_place) {
      own.part.assign(part.data, part.data + size);
    }
  });
  return found;
}

/// Compares with sums in double, one rounding of each of `ranks` additions and one to the type apart at most, and bit
/// for bit with the communicator.
template <class Codec>
void check_reduced(int ranks, std::uint64_t seed, std::int64_t count, compressed_collective_options const& options,
                   bool is_in_place = false) {
  using type = typename Codec::value_type;
  INFO(ranks << " ranks, seed " << seed << ", " << count << " values");
  lists_of<Codec> lists;
  for (int rank = 0; rank < ranks; ++rank) {
    lists.push_back(gradients_of<type>(rank, seed, ranks * count));
  }
  auto const found = reduced<Codec>(lists, options, is_in_place);
  double const rounding = std::ldexp(1.0, -scalar_traits<type>::mantissa_bits - 1);
  std::int64_t apart = 0;
  std::int64_t others = 0;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    REQUIRE(found[rank].said.empty());
    CHECK(found[rank].is_sound);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      double sum = 0;
      double magnitude = 0;
      for (auto const& list : lists) {
        auto const value = static_cast<double>(load(list[rank * static_cast<std::size_t>(count) + i]));
        sum += value;
        magnitude += std::abs(value);
      }
      auto const made = static_cast<double>(load(found[rank].part[i]));
      double const bound = rounding * std::abs(sum) + ranks * std::ldexp(magnitude, -23) + 1e-7;
      bool const is_near =
          std::isfinite(sum) ? std::abs(made - sum) <= bound : (std::isnan(sum) ? std::isnan(made) : made == sum);
      apart += is_near ? 0 : 1;
      auto const of_communicator = static_cast<double>(load(found[rank].of_communicator[i]));
      others += made == of_communicator || (std::isnan(made) && std::isnan(of_communicator)) ? 0 : 1;
    }
  }
  CHECK(apart == 0);
  CHECK(others == 0);
}

}  // namespace compressed_reduce_scatter_test

using namespace compressed_reduce_scatter_test;

TEST_CASE("compressed_reduce_scatter adds what all ranks have", "[host][threads]") {
  int const ranks = GENERATE(1, 2, 3, 8);
  std::uint64_t seed = 0;
  for (std::int64_t const count : {0, 1, 7, 2047, 2048, 8191, 8192, 8193, 40003}) {
    check_reduced<neuzip>(ranks, seed++, count, small_messages());
  }
}

TEST_CASE("compressed_reduce_scatter takes all types that ranks reduce", "[host][threads]") {
  for (std::int64_t const count : {7, 2049, 50001}) {
    check_reduced<neuzip_of<float16>>(3, 1, count, small_messages());
    check_reduced<neuzip_of<float>>(3, 2, count, small_messages());
    check_reduced<neuzip_fixed<bfloat16>>(3, 3, count, small_messages());
  }
}

TEST_CASE("compressed_reduce_scatter adds in place, with tails, checksums and without compression", "[host][threads]") {
  check_reduced<neuzip>(3, 1, 50001, small_messages(), true);
  check_reduced<neuzip>(2, 1, 50001, {}, true);
  check_reduced<neuzip>(3, 1, 50001, {});
  auto options = small_messages();
  options.body_bits = 9.0F;
  check_reduced<neuzip>(3, 2, 50001, options);
  check_reduced<neuzip>(3, 2, 50001, options, true);
  options.checksums = true;
  check_reduced<neuzip>(3, 3, 50001, options);
}

TEST_CASE("compressed_reduce_scatter by stores adds what all ranks have", "[host][threads]") {
  int const ranks = GENERATE(1, 2, 3, 8);
  std::uint64_t seed = 0;
  for (std::int64_t const count : {0, 1, 7, 2047, 8191, 8192, 8193, 50001}) {
    check_reduced<neuzip>(ranks, seed, count, small_stores());
    check_reduced<neuzip>(ranks, seed++, count, small_stores(), true);
  }
  auto options = small_stores();
  options.longest_bytes = 1 << 17;
  options.checksums = true;
  check_reduced<neuzip>(ranks, 1, 150003, options);
  check_reduced<neuzip_of<float>>(ranks, 2, 50001, small_stores());
  check_reduced<neuzip>(ranks, 3, 50001, compressed_collective_options::for_peer_memory());  // as they are
}

TEST_CASE("where only some ranks have tails all get their sums", "[host][threads]") {
  constexpr std::int64_t count = 50001;
  lists_of<neuzip> lists;
  for (int rank = 0; rank < 3; ++rank) {
    auto list = gradients_of<bfloat16>(rank, 5, 3 * count);
    if (rank == 1) {
      for (std::int64_t i = 0; i < count; ++i) {  // what rank 1 sends to rank 0: any exponent of 32 neighbours
        auto const random = testing::hash(9, static_cast<std::uint64_t>(i));
        list[static_cast<std::size_t>(i)] =
            from_bits<bfloat16>(static_cast<std::uint16_t>((100U << 7) + random % 4096));
      }
    }
    lists.push_back(list);
  }
  auto const found = reduced<neuzip>(lists, small_messages());
  for (auto const& of_rank : found) {
    CHECK(of_rank.said.empty());
    CHECK(std::memcmp(of_rank.part.data(), of_rank.of_communicator.data(), of_rank.part.size() * sizeof(bfloat16)) ==
          0);
  }
  CHECK(sent_share(found[0].traffic) < 0.82);
  CHECK(sent_share(found[1].traffic) > 0.95);
}

TEST_CASE("compressed_reduce_scatter gives the same bits each time", "[host][threads]") {
  lists_of<neuzip> lists;
  for (int rank = 0; rank < 3; ++rank) {
    lists.push_back(gradients_of<bfloat16>(rank, 5, 3 * 40003));
  }
  auto const first = reduced<neuzip>(lists, small_messages());
  auto other = small_messages();
  other.head_bytes = 0;
  other.body_bits = 10.0F;
  auto const second = reduced<neuzip>(lists, other);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(std::memcmp(first[rank].part.data(), second[rank].part.data(), 40003 * sizeof(bfloat16)) == 0);
  }
}

TEST_CASE("the rank that receives damage refuses it, others have their sums", "[host][threads]") {
  lists_of<neuzip> lists;
  for (int rank = 0; rank < 3; ++rank) {
    lists.push_back(gradients_of<bfloat16>(rank, 5, 3 * 40003));
  }
  auto options = small_messages();
  options.checksums = true;
  auto const layout = detail::message_layout<neuzip>::of("test", 40003, options);
  REQUIRE(layout.chunks == 5);
  for (int const chunk : {0, 2, 4}) {
    auto const found =
        reduced<neuzip>(lists, options, false, {1, [&](int message, int from, array_view<std::byte> bytes) {
                                                  if (message == chunk && from == 2) {
                                                    bytes[layout.table_before(chunk) + 3000] ^= std::byte{4};
                                                  }
                                                }});
    CHECK_THAT(found[1].said, contains("compressed_weights.decode: "));
    CHECK(found[1].is_sound);
    for (std::size_t const rank : {0U, 2U}) {
      CHECK(found[rank].said.empty());
      CHECK(std::memcmp(found[rank].part.data(), found[rank].of_communicator.data(), 40003 * sizeof(bfloat16)) == 0);
    }
  }
  std::int64_t const size = 3;
  auto const table =
      reduced<neuzip>(lists, options, false, {1, [&](int message, int from, array_view<std::byte> bytes) {
                                                if (message == 2 && from == 2) {
                                                  std::memcpy(bytes.data + 8, &size, sizeof size);
                                                }
                                              }});
  CHECK_THAT(table[1].said, contains("compressed_reduce_scatter.exchange: chunk 1 of rank 2 has 3 bytes, as the rank's "
                                     "message says, but can have from "));
  CHECK(table[0].said.empty());
}

TEST_CASE("compressed_reduce_scatter refuses what does not fit", "[host][threads]") {
  using collective = compressed_reduce_scatter<neuzip>;
  cpu const exec{.threads = 1};
  side_queue<cpu> const wire(exec, collective::side_marks, true);
  loopback ranks;
  workspace_plan const plan = collective::plan(exec, 1, 8);
  guarded_block block(plan.bytes());
  workspace const space(plan, block.view());
  std::vector<bfloat16> list(16);
  array_view<bfloat16> const whole = list;
  auto const said = [&](array_view<bfloat16 const> all, array_view<bfloat16> part,
                        compressed_collective_options const& options = {}) {
    return message_of([&] { collective::exchange(exec, wire, ranks, all, part, options, space); });
  };
  CHECK(said(whole, whole).empty());
  CHECK(said(whole, whole.slice(0, 0, 8)) ==
        "compressed_reduce_scatter.exchange: the own part has 8 elements for each of 1 ranks, which is 8, but the list "
        "for all has 16");
  CHECK(said(whole, {nullptr, 16}) == "compressed_reduce_scatter.exchange: the own part has no memory but 16 elements");
  CHECK(said(whole, whole, {.head_bytes = -3}) ==
        "compressed_reduce_scatter.exchange: head_bytes is -3 but must be at least 0");
  CHECK_THAT(message_of([&] { static_cast<void>(collective::plan(exec, -1, 8)); }),
             contains("compressed_reduce_scatter.exchange: there are -1 ranks but must be 1 or more"));
  std::string of_rank[2];
  on_ranks(2, [&](threads& several) {
    std::int64_t const own = several.rank() == 0 ? 0 : 7;
    std::vector<bfloat16> all(static_cast<std::size_t>(2 * own));
    std::vector<bfloat16> part(static_cast<std::size_t>(own));
    with_collective_space<collective>(
        [&](cpu const& own_exec) { return collective::plan(own_exec, 2, own, small_messages()); },
        [&](cpu const& own_exec, side_queue<cpu> const& own_wire, workspace const& own_space) {
          of_rank[several.rank()] = message_of(
              [&] { collective::exchange(own_exec, own_wire, several, all, part, small_messages(), own_space); });
        });
  });
  for (std::string const& text : of_rank) {
    CHECK(text == "compressed_reduce_scatter.exchange: rank 0 gives 0 weights but rank 1 gives 7");
  }
}

TEST_CASE("programs of collectives keep the rules of programs", "[host]") {
  testing::adversary exec;
  for (std::int64_t const count : {0, 1, 7, 1023, 1024, 1025}) {
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      std::vector<bfloat16> const others = gradients_of<bfloat16>(0, 3, 2 * count);
      std::vector<bfloat16> const own = gradients_of<bfloat16>(1, 3, count);
      std::vector<bfloat16> sums(static_cast<std::size_t>(count));
      detail::add_lists_of_ranks<bfloat16> const add{{others.data(), {2, count}}, own, rank, sums};
      exec.run(add, add.groups());
      for (std::int64_t i = 0; i < count; ++i) {
        std::vector<float> values{load(others[static_cast<std::size_t>(i)]),
                                  load(others[static_cast<std::size_t>(count + i)])};
        values.insert(values.begin() + rank, load(own[static_cast<std::size_t>(i)]));
        bfloat16 const wanted = store<bfloat16>((values[0] + values[1]) + values[2]);
        bool const is_nan = std::isnan(load(wanted)) && std::isnan(load(sums[static_cast<std::size_t>(i)]));
        REQUIRE((is_nan || sums[static_cast<std::size_t>(i)].bits == wanted.bits));
      }
    }
  }
  std::vector<std::int64_t> const tables{1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::int64_t> gathered(6);
  detail::gather_tables const gather{{tables.data(), {2, 3}, {5, 1}}, gathered};
  exec.run(gather, gather.groups());
  CHECK(gathered == std::vector<std::int64_t>{1, 2, 3, 6, 7, 8});
  std::vector<std::int64_t> sealed{1, 2, 0, 9, 3, 4, 0};
  detail::seal_tables const seal{{sealed.data(), {2, 3}, {4, 1}}};
  exec.run(seal, seal.groups());
  CHECK(sealed[2] == detail::seal_of(sealed.data(), 2));
  CHECK(sealed[6] == detail::seal_of(sealed.data() + 4, 2));
  CHECK(sealed[2] != sealed[6]);
  CHECK(sealed[3] == 9);
}
