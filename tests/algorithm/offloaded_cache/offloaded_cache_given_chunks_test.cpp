// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/given_chunks.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/recent.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/given_problem.hpp"
#include "support/offload_problem.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::dense_attention;
using tessera_test::embedding;
using tessera_test::given_lists;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::relative_error;

namespace {

constexpr offload_heads heads{4, 2, 16};
constexpr std::int64_t step_size = 4 * 16;

/// Two sequences with 40 and 3 archived chunks.
template <class Method>
struct two_sequences {
  offload_sequence<float> first = make_sequence<float>(heads, 420, 3, 0.8);
  offload_sequence<float> second = make_sequence<float>(heads, 120, 4, 0.8);
  host_cache<Method, float> cache{heads, {420, 120}, embedding(), {}, {.chunks = 4}};

  two_sequences() {
    cache.prefill(cpu{}, 0, first, 383);
    cache.prefill(cpu{}, 1, second, 87);
    REQUIRE(cache.memory().sequences[0].chunks == 40);
    REQUIRE(cache.memory().sequences[1].chunks == 3);
  }
  /// A step of both sequences.
  template <class Executor>
  std::vector<float> step(Executor const& exec, given_lists const& lists, std::vector<std::int32_t> const& named = {}) {
    chunk_lists given{{lists.chunks.data(), {2, 2, 4}}};
    if (!lists.counts.empty()) {
      given.counts = {lists.counts.data(), {2, 2}};
    }
    return cache.decode(exec, {&first, &second}, {383, 87}, named, nullptr, given);
  }
};

using exact = offloaded_cache<exact_keys, given_chunks<8>, keep_outliers<2>>;

/// Whether a list has a chunk.
bool has(given_lists const& lists, std::int64_t step, std::int64_t head, std::int64_t chunk) {
  auto const list = static_cast<std::size_t>(2 * step + head);
  auto const count = static_cast<std::size_t>(lists.counts.empty() ? 4 : lists.counts[list]);
  auto const at = lists.chunks.begin() + static_cast<std::ptrdiff_t>(4 * list);
  auto const end = at + static_cast<std::ptrdiff_t>(count);
  return std::find(at, end, static_cast<std::int32_t>(chunk)) != end;
}

}  // namespace

TEST_CASE("a step attends to the given chunks, the exact ones and the latest tokens", "[host][threads]") {
  for (given_lists const& lists : tessera_test::lists_with_faults()) {
    if (!lists.said.empty()) {
      continue;
    }
    two_sequences<exact> problem;
    cpu const exec{.threads = 2};
    auto const& ids = problem.cache.memory().exact_ids;  // the step archives a chunk, which may become exact
    std::vector<std::int32_t> const before(ids.data, ids.data + ids.size());
    auto const found = problem.step(exec, lists);
    exec.wait();
    for (std::int64_t i = 0; i < 2; ++i) {
      auto const attended = [&](std::int64_t head, std::int64_t token) {
        bool is_exact = false;
        for (std::int64_t index = 0; index < 2; ++index) {
          is_exact = is_exact || before[static_cast<std::size_t>(ids.offset(i, head, index))] == token / 8;
        }
        return token / 8 >= (i == 0 ? 40 : 3) || is_exact || has(lists, i, head, token / 8);
      };
      auto const expected = dense_attention(heads, i == 0 ? problem.first : problem.second, i == 0 ? 383 : 87,
                                            embedding(), 0, nullptr, attended);
      std::vector<float> const own(found.begin() + static_cast<std::ptrdiff_t>(i * step_size),
                                   found.begin() + static_cast<std::ptrdiff_t>((i + 1) * step_size));
      CHECK(relative_error(own, expected) < 2e-6);
    }
    auto const step = problem.cache.step(2);
    for (std::int64_t list = 0; list < 4; ++list) {  // ascending, each once, the rest -1
      std::int64_t const taken = step.selected_counts(list / 2, list % 2);
      for (std::int64_t rank = 0; rank < 4; ++rank) {
        std::int32_t const chunk = step.selected(list / 2, list % 2, rank);
        CHECK((chunk >= 0) == (rank < taken));
        CHECK((rank == 0 || rank >= taken || step.selected(list / 2, list % 2, rank - 1) < chunk));
        CHECK((chunk < 0 || has(lists, list / 2, list % 2, chunk)));
      }
    }
  }
}

TEMPLATE_TEST_CASE("lists with faults are reported, and their sequences left as they are", "[host]", cpu,
                   testing::adversary) {
  for (given_lists const& lists : tessera_test::lists_with_faults()) {
    two_sequences<exact> problem;
    TestType const exec{};
    auto const before = problem.cache.device_bytes();
    auto const found = problem.step(exec, lists);
    if (lists.said.empty()) {
      CHECK_NOTHROW(exec.wait());
    } else {
      CHECK_THROWS_WITH(exec.wait(), contains("offloaded_cache.decode") && contains(lists.said));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      auto const at = static_cast<std::int64_t>(i);
      bool const is_zero = std::all_of(found.begin() + at * step_size, found.begin() + (at + 1) * step_size,
                                       [](float x) { return x == 0.0F; });
      CHECK(is_zero != lists.is_taken[i]);
      CHECK(problem.cache.memory().sequences[at].tokens == (i == 0 ? 383 : 87) + (lists.is_taken[i] ? 1 : 0));
    }
    if (!lists.is_taken[0] && !lists.is_taken[1]) {
      CHECK(problem.cache.device_bytes() == before);
    }
  }
}

TEST_CASE("faults of steps are reported as without lists, and a named sequence has its own list", "[host]") {
  given_lists lists = tessera_test::lists_with_faults()[0];
  two_sequences<exact> problem;
  cpu const exec;
  problem.step(exec, lists, {1, 1});
  CHECK_THROWS_WITH(exec.wait(), contains("step 0 is of sequence 1, and so is step 1"));
  CHECK(problem.cache.memory().sequences[1].tokens == 87);
  problem.step(exec, lists, {0, 7});
  CHECK_THROWS_WITH(exec.wait(), contains("step 1 is of sequence 7, which is none of 2"));
  CHECK(problem.cache.memory().sequences[0].tokens == 384);

  two_sequences<exact> turned;  // step 0 is of sequence 1, which has 3 chunks
  std::rotate(lists.chunks.begin(), lists.chunks.begin() + 8, lists.chunks.end());
  auto const found = turned.cache.decode(exec, {&turned.second, &turned.first}, {87, 383}, {1, 0}, nullptr,
                                         {{lists.chunks.data(), {2, 2, 4}}});
  exec.wait();
  two_sequences<exact> straight;
  auto const expected = straight.step(exec, tessera_test::lists_with_faults()[0]);
  exec.wait();
  CHECK(std::equal(found.begin(), found.begin() + step_size, expected.begin() + step_size));
  CHECK(std::equal(found.begin() + step_size, found.end(), expected.begin()));
}

TEST_CASE("given chunks are what recent_selector takes, if these are given", "[host]") {
  using given = offloaded_cache<low_rank<16>, given_chunks<8>, keep_outliers<2>>;
  using recent = offloaded_cache<low_rank<16>, recent_selector<8>, keep_outliers<2>>;
  auto const s = make_sequence<float>(heads, 420, 3, 0.8);
  host_cache<given, float> one(heads, {420}, embedding(), {}, {.chunks = 4});
  host_cache<recent, float> two(heads, {420}, embedding(), {}, {.chunks = 4});
  one.prefill(cpu{}, 0, s, 383);
  two.prefill(cpu{}, 0, s, 383);
  for (std::int64_t position = 383; position < 420; ++position) {
    auto const expected = two.decode(cpu{}, {&s}, {position});
    auto const step = two.step(1);
    std::vector<std::int32_t> lists;
    for (std::int64_t i = 7; i >= 0; --i) {  // in another order
      lists.push_back(step.selected(0, 1 - i / 4, i % 4));
    }
    auto const found = one.decode(cpu{}, {&s}, {position}, {}, nullptr, {{lists.data(), {1, 2, 4}}});
    REQUIRE(found == expected);
  }
}

TEST_CASE("lists of chunks that do not fit a call are refused", "[host]") {
  two_sequences<exact> problem;
  std::vector<std::int32_t> const lists(64, -1);
  auto const decode = [&](chunk_lists const& given) {
    problem.cache.decode(cpu{}, {&problem.first, &problem.second}, {383, 87}, {}, nullptr, given);
  };
  CHECK_THROWS_WITH(decode({}), contains("dimension 0 of the given chunks has 0 elements but needs 2"));
  CHECK_THROWS_WITH(decode({{lists.data(), {2, 3, 4}}}), contains("dimension 1 of the given chunks has 3"));
  CHECK_THROWS_WITH(decode({{lists.data(), {2, 2, 5}}}),
                    contains("5 chunks are given for a key head but the selector takes at most 4"));
  CHECK_THROWS_WITH(decode({{lists.data(), {2, 2, 4}}, {lists.data(), {2, 1}}}),
                    contains("dimension 1 of the counts of given chunks has 1 elements but needs 2"));
  CHECK_THROWS_WITH(decode({{nullptr, {2, 2, 4}}}), contains("given chunks have no memory"));
  using recent = offloaded_cache<exact_keys, recent_selector<8>, keep_outliers<2>>;
  two_sequences<recent> other;
  CHECK_THROWS_WITH(other.step(cpu{}, tessera_test::lists_with_faults()[0]),
                    contains("chunks are given for 2 steps but the selector chooses them"));
}
