// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

struct attention_setup {
  std::int64_t sequences = 2;
  std::int64_t query_heads = 4;
  std::int64_t key_heads = 2;
  std::int64_t queries = 1;
  std::int64_t tokens = 400;
  cache_page_format format = {64, 4, 4, 1, 2};
  retain_most_different rule = retain_most_different::angle(1.5F);
  std::int64_t capacity = 64;
  std::vector<std::int32_t> lengths = {};  ///< lengths of the sequences; empty: all tokens
  std::int64_t splits = 0;                 ///< splits of the tokens; 0: as many as the extents ask for
  bool is_causal = true;

  attention_shape shape() const { return {sequences, query_heads, key_heads, queries, tokens, format.channels}; }
};

/// A cache that has been filled, and queries.
template <class T>
struct attention_on_cache {
  attention_setup setup;
  cache_problem<T> cache;
  std::vector<T> queries;

  explicit attention_on_cache(attention_setup const& with)
      : setup(with), cache(with.format, with.key_heads, with.sequences, with.tokens, 64, with.capacity) {
    auto const pair = make_layer_pair<T>(with.sequences, with.key_heads, with.tokens, with.format.channels);
    cache.append(cpu{.threads = 1}, pair.inputs(), with.rule);
    for (std::size_t i = 0; i < with.lengths.size(); ++i) {
      // A shorter sequence has its last tokens in the tail; only tokens of sealed pages may be cut off here.
      cache.lengths[i] = with.lengths[i];
    }
    queries = attention_samples<T>(testing::gauss{.sigma = 1.5}, 77, with.sequences * with.query_heads,
                                   with.queries * with.format.channels);
  }

  template <class Result, class Executor>
  attention_results run(Executor const& exec, int layer, std::int64_t splits = 0) const {
    attention_shape const s = setup.shape();
    std::vector<Result> result(queries.size(), store<Result>(-77.0F));
    std::vector<float> lse(as_size(s.batch * s.query_heads * s.queries), -77.0F);
    std::int64_t const among = splits > 0 ? splits : cached_attention_splits(s);
    cached_attention_regions const regions("test", s, among);
    buffer<std::byte> memory(exec, regions.plan.bytes());
    for (std::byte& byte : memory) {
      byte = std::byte{0xa5};
    }
    cached_attention_call<T, Result> call{s,
                                          cache.memory,
                                          cache.sequences(),
                                          layer,
                                          {queries.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                          1.0F / std::sqrt(static_cast<float>(s.channels)),
                                          setup.is_causal,
                                          {{result.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                           {lse.data(), {s.batch, s.query_heads, s.queries}}}};
    call.partials = regions.partials(workspace(regions.plan, memory));
    tessera::run(exec, call);
    exec.wait();
    return {as_doubles(result), std::vector<double>(lse.begin(), lse.end())};
  }

  /// Attention in double, over the keys and values that the cache restores.
  attention_results expected(int layer) const {
    attention_problem<T> p{setup.shape(), queries, {}, {}};
    p.options.is_causal = setup.is_causal;
    p.key_lengths = cache.lengths;
    return attention_by_formula(
        p, {p.shape, as_doubles(queries), as_doubles(cache.template restored<float>(layer, 0, setup.tokens)),
            as_doubles(cache.template restored<float>(layer, 1, setup.tokens))});
  }
};

double worst(attention_results const& found, attention_results const& expected) {
  double square = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.result.size(); ++i) {
    double const apart = found.result[i] - expected.result[i];
    square += apart * apart;
    size += expected.result[i] * expected.result[i];
  }
  return std::sqrt(square / size);
}

template <class T>
void check_setup(attention_setup const& setup) {
  attention_on_cache<T> const problem(setup);
  for (int layer = 0; layer < setup.format.layers; ++layer) {
    auto const found = problem.template run<float>(cpu{.threads = 1}, layer, setup.splits);
    auto const expected = problem.expected(layer);
    CAPTURE(layer);
    CHECK(worst(found, expected) < 2e-5);
    CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 2e-5);
  }
}

}  // namespace

TEST_CASE("attention over a cache is that over what it restores to, for every width of heads", "[host][slow]") {
  for (int channels : {64, 96, 128, 256}) {
    CAPTURE(channels);
    check_setup<bfloat16>({.format = {channels, 4, 4, 2, 2}});
  }
}

TEST_CASE("it is so for every number of bits", "[host][slow]") {
  for (int bits : {2, 3, 4, 8}) {
    CAPTURE(bits);
    check_setup<float16>({.sequences = 1, .tokens = 330, .format = {64, bits, bits == 8 ? 2 : 8, 1, 2}});
  }
}

TEST_CASE("it is so for any number of query heads of a key head", "[host][slow]") {
  for (std::int64_t group : {1, 3, 8, 20}) {
    CAPTURE(group);
    check_setup<bfloat16>({.query_heads = 2 * group});
  }
}

TEST_CASE("it is so where nothing or everything is retained, and for pages of one layer", "[host][slow]") {
  check_setup<bfloat16>({.rule = retain_most_different::none(), .capacity = 0});
  check_setup<bfloat16>({.rule = retain_most_different::angle(0.0F), .capacity = 400});
  check_setup<bfloat16>({.format = {64, 4, 4, 1, 1}, .capacity = 0});
}

TEST_CASE("where everything is retained, attention is that over the original tokens", "[host]") {
  attention_on_cache<bfloat16> const problem({.rule = retain_most_different::angle(0.0F), .capacity = 400});
  auto const pair = make_layer_pair<bfloat16>(2, 2, 400, 64);
  attention_problem<bfloat16> p{problem.setup.shape(), problem.queries, pair.part[1][0], pair.part[1][1]};
  auto const expected = attention_by_formula(p);
  auto const found = problem.run<float>(cpu{.threads = 1}, 1);
  CHECK(worst(found, expected) < 1e-5);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 1e-5);
}

TEST_CASE("several queries see the keys before their own", "[host][long]") {
  check_setup<bfloat16>({.queries = 5});
  check_setup<bfloat16>({.queries = 20, .is_causal = false});
  check_setup<bfloat16>({.queries = 100});  // further back than the tail
}

TEST_CASE("sequences may be short, and empty ones give zeros", "[host]") {
  for (std::int32_t length : {1, 63, 64, 65, 127}) {  // all in the tail
    attention_setup setup{.sequences = 1, .tokens = length};
    check_setup<bfloat16>(setup);
  }
  attention_on_cache<bfloat16> const problem({.lengths = {400, 0}});
  auto const found = problem.run<float>(cpu{.threads = 1}, 0);
  auto const expected = problem.expected(0);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 2e-5);
  for (std::size_t i = found.result.size() / 2; i < found.result.size(); ++i) {
    CHECK(found.result[i] == 0.0);
  }
}

TEST_CASE("the number of splits and of threads makes no difference beyond rounding", "[host][threads]") {
  attention_on_cache<float16> const problem({.sequences = 1, .tokens = 900});
  auto const one = problem.run<float>(cpu{.threads = 1}, 0, 1);
  for (std::int64_t splits : {2, 3, 7, 15, 40}) {
    auto const several = problem.run<float>(cpu{.threads = 2}, 0, splits);
    CHECK(worst(several, one) < 1e-6);
    CHECK(farthest(several.log_sum_exp, one.log_sum_exp) < 1e-5);
  }
  auto const unkind = problem.run<float>(testing::adversary{.seed = 3}, 0, 3);
  auto const kind = problem.run<float>(cpu{.threads = 1}, 0, 3);
  CHECK(unkind.result == kind.result);
  CHECK(unkind.log_sum_exp == kind.log_sum_exp);
}

TEST_CASE("the order of whole pages makes no difference beyond rounding", "[host]") {
  attention_on_cache<float16> problem({.sequences = 1, .tokens = 900, .is_causal = false});
  auto const before = problem.run<float>(cpu{.threads = 1}, 1);
  auto& blocks = problem.cache.blocks;
  for (std::size_t i = 0; i < 6; ++i) {
    std::swap(blocks[i], blocks[11 - i]);
  }
  auto const after = problem.run<float>(cpu{.threads = 1}, 1);
  CHECK(worst(after, before) < 1e-6);
  CHECK(after.result != before.result);
}

TEST_CASE("results come in the type that is asked for", "[host]") {
  attention_on_cache<bfloat16> const problem({});
  auto const fine = problem.run<float>(cpu{.threads = 1}, 0);
  auto const coarse = problem.run<bfloat16>(cpu{.threads = 1}, 0);
  for (std::size_t i = 0; i < fine.result.size(); ++i) {
    REQUIRE(coarse.result[i] == static_cast<double>(load(store<bfloat16>(static_cast<float>(fine.result[i])))));
  }
}

TEST_CASE("what is not finite shows in the rows that see it, and only there", "[host]") {
  attention_setup const setup{.sequences = 1, .rule = retain_most_different::none(), .capacity = 0};
  attention_on_cache<bfloat16> problem(setup);
  auto pair = make_layer_pair<bfloat16>(1, 2, 400, 64);
  pair.part[0][0][as_size((400 + 70) * 64 + 3)] = store<bfloat16>(INFINITY);  // of the second head
  cache_problem<bfloat16> cache(setup.format, 2, 1, 400, 64, 0);
  cache.append(cpu{.threads = 1}, pair.inputs(), setup.rule);
  problem.cache.memory.pages = cache.memory.pages;
  auto const found = problem.run<float>(cpu{.threads = 1}, 0);
  for (std::size_t i = 0; i < found.result.size(); ++i) {
    CHECK(std::isnan(found.result[i]) == (i / 64 >= 2));
  }
}
