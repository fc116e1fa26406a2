// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/paged_cache/paged_cache.cuh>
#include <tessera/exec/cpu.hpp>
#include <tessera/merge/slerp.hpp>

#include "support/cache_on_device.hpp"
#include "support/cache_problem.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

struct decode_setup {
  std::int64_t sequences = 2;
  std::int64_t query_heads = 4;
  std::int64_t key_heads = 2;
  std::int64_t queries = 1;
  std::int64_t tokens = 1100;
  cache_page_format format = {128, 4, 4, 2, 2};
  retain_most_different rule = retain_most_different::angle(1.5F);
  std::int64_t capacity = 64;
  std::int64_t window = 64;
  std::vector<std::int32_t> lengths = {};  ///< lengths of the sequences; empty: all tokens
  std::vector<std::int32_t> pages = {};    ///< sealed pages of the sequences; empty: as many as there can be
  std::int64_t splits = 0;                 ///< splits that there is memory for; 0: as many as the extents ask for
  bool is_causal = true;
  float value_factor = 1.0F;
  float query_factor = 1.5F;

  attention_shape shape() const { return {sequences, query_heads, key_heads, queries, tokens, format.channels}; }
};

/// The root mean square of the difference, relative.
double distance(std::vector<double> const& found, std::vector<double> const& expected) {
  double square = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double const apart = found[i] - expected[i];
    square += apart * apart;
    size += expected[i] * expected[i];
  }
  return std::sqrt(square / size);
}

template <class T>
struct decode_problem {
  decode_setup setup;
  cache_problem<T> cache;
  std::vector<T> queries;
  cuda exec;

  explicit decode_problem(decode_setup const& with)
      : setup(with), cache(with.format, with.key_heads, with.sequences, with.tokens, with.window, with.capacity) {
    auto pair = make_layer_pair<T>(with.sequences, with.key_heads, with.tokens, with.format.channels);
    for (auto& layer : pair.part) {
      for (T& value : layer[1]) {
        value = store<T>(static_cast<float>(load(value)) * with.value_factor);
      }
    }
    cache.append(cpu{.threads = 1}, pair.inputs(), with.rule);
    for (std::size_t i = 0; i < with.lengths.size(); ++i) {
      cache.lengths[i] = with.lengths[i];
    }
    queries = attention_samples<T>(testing::gauss{.sigma = static_cast<double>(with.query_factor)}, 77,
                                   with.sequences * with.query_heads, with.queries * with.format.channels);
  }

  template <class Result, class Decode>
  attention_results run(int layer, Decode const& decode) const {
    attention_shape const s = setup.shape();
    cache_on_device<T> const there(exec, cache);
    auto const their_queries = on_device(exec, queries);
    auto result = on_device(exec, std::vector<Result>(queries.size(), store<Result>(-77.0F)));
    std::size_t const rows = as_size(s.batch * s.query_heads * s.queries);
    auto lse = on_device(exec, std::vector<float>(rows, -77.0F));
    cached_attention_regions const regions("test", s, setup.splits > 0 ? setup.splits : cached_attention_splits(s));
    auto space = on_device(exec, std::vector<std::byte>(as_size(regions.plan.bytes()), std::byte{0xff}));
    auto const pages = on_device(exec, setup.pages.empty() ? std::vector<std::int32_t>{0} : setup.pages);
    cache_sequences sequences = there.sequences();
    if (!setup.pages.empty()) {
      sequences.pages = {pages.data(), pages.size()};
    }
    cached_attention_call<T, Result> call{s,
                                          there.memory,
                                          sequences,
                                          layer,
                                          {their_queries.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                          1.0F / std::sqrt(static_cast<float>(s.channels)),
                                          setup.is_causal,
                                          {{result.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                           {lse.data(), {s.batch, s.query_heads, s.queries}}}};
    call.partials = regions.partials(workspace(regions.plan, space));
    decode(exec, call);
    auto const found = on_host(exec, lse);
    return {as_doubles(on_host(exec, result)), std::vector<double>(found.begin(), found.end())};
  }

  /// Attention in double, over the keys and values that the cache restores.
  attention_results expected(int layer) const {
    attention_problem<T> p{setup.shape(), queries, {}, {}};
    p.options.is_causal = setup.is_causal;
    p.key_lengths = cache.lengths;
    cache_sequences sequences = cache.sequences();
    if (!setup.pages.empty()) {
      sequences.pages = setup.pages;
    }
    attention_shape const s = setup.shape();
    std::vector<float> both[2];
    head_view<float> views[2];
    for (int which = 0; which < 2; ++which) {
      both[which].assign(as_size(s.batch * s.key_heads * s.keys * s.channels), 0.0F);
      views[which] = {both[which].data(), {s.batch, s.key_heads, s.keys, s.channels}};
    }
    tessera::run(cpu{.threads = 1}, cache_restore_call<T, float>{cache.memory, sequences, layer, views[0], views[1]});
    return attention_by_formula(p, {p.shape, as_doubles(queries), as_doubles(both[0]), as_doubles(both[1])});
  }
};

/// Calls `use` with the programs that this source has for the device: that by TMA, where it runs, and that by warps.
template <class Use>
void use_programs(Use const& use) {
  using by_bulk_copies = tessera::detail::pages_by_bulk_copies;
  if constexpr (cuda::is_compiled_for<900>) {
    if (is_hopper()) {
      use(std::type_identity<by_bulk_copies>{});
    }
  }
  use(std::type_identity<tessera::detail::pages_by_warps>{});
}
/// Runs one of the programs for one format alone. run() would have compiled those of all formats.
template <class Programs, class Columns = page_columns<128, 2>>
constexpr auto decode = [](auto const& exec, auto const& call) {
  using program =
      tessera::detail::page_program<tessera::detail::pages_by_warps, Columns, std::remove_cvref_t<decltype(call)>>;
  static_assert(tessera::detail::launch_shape<program>::shared_bytes <= 99 * 1024,
                "multiprocessors with 100 KiB of shared memory have this program, too");
  REQUIRE(!tessera::detail::refuses_page_decode<Columns, Programs>(exec, call));
  tessera::detail::run_page_decode<Columns, Programs>(exec, call);
};

/// Compares attention on the device with that in double. Weights are rounded to fp16, or to T for uncompressed tokens.
template <class T, int Channels, int Groups, int Bits = 4, int ValueBits = Bits>
void check_setup(decode_setup setup, double tolerance = 1.5e-3) {
  setup.format.channels = Channels;
  setup.format.value_groups = Groups;
  setup.format.key_bits = Bits;
  setup.format.value_bits = ValueBits;
  decode_problem<T> const problem(setup);
  for (int layer = 0; layer < setup.format.layers; ++layer) {
    auto const expected = problem.expected(layer);
    use_programs([&]<class Programs>(std::type_identity<Programs>) {
      using columns = page_columns<Channels, Groups, Bits, ValueBits>;
      auto const found = problem.template run<float>(layer, decode<Programs, columns>);
      CAPTURE(layer, Channels, Groups, Bits, ValueBits, setup.query_heads, setup.queries, setup.tokens);
      bool const is_by_warps = std::is_same_v<Programs, tessera::detail::pages_by_warps>;
      CAPTURE(is_by_warps);
      CHECK(distance(found.result, expected.result) < tolerance);
      CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) <
            0.01 * std::max(1.0, static_cast<double>(setup.query_factor) / 2));
    });
  }
}

}  // namespace

TEST_CASE("decoding over pages is attention over what they restore to, for every width of heads", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_setup<bfloat16, 64, 1>({});
  check_setup<bfloat16, 96, 1>({});
  check_setup<bfloat16, 96, 2>({});
  check_setup<float16, 96, 2>({.query_heads = 16, .queries = 3});
  check_setup<bfloat16, 128, 1>({});
  check_setup<bfloat16, 128, 2>({});
  check_setup<bfloat16, 256, 1>({.tokens = 500});
  check_setup<bfloat16, 256, 2>({.tokens = 500});
  check_setup<bfloat16, 256, 4>({.tokens = 500});
  check_setup<float16, 64, 1>({});
  check_setup<float16, 128, 2>({});
}

TEST_CASE("decoding over pages takes codes of 2, 3 and 8 bits", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_setup<bfloat16, 64, 1, 2>({});
  check_setup<bfloat16, 64, 1, 3>({});
  check_setup<bfloat16, 64, 1, 8>({});
  check_setup<bfloat16, 128, 2, 2>({.query_heads = 16});
  check_setup<bfloat16, 128, 2, 3>({.queries = 3});
  check_setup<bfloat16, 128, 2, 8>({.value_factor = 100.0F});
  check_setup<bfloat16, 256, 4, 2>({.tokens = 500});
  check_setup<bfloat16, 256, 4, 3>({.tokens = 500});
  check_setup<bfloat16, 256, 4, 8>({.tokens = 500});
  check_setup<float16, 128, 2, 2>({.sequences = 1, .tokens = 2113});
  check_setup<float16, 128, 2, 3>({.sequences = 1, .tokens = 2113});
  check_setup<float16, 128, 2, 8>({.sequences = 1, .tokens = 2113});
}

TEST_CASE("decoding over pages takes keys of 4 bits and values of 2", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_setup<bfloat16, 64, 1, 4, 2>({});
  check_setup<bfloat16, 128, 2, 4, 2>({.query_heads = 16});
  check_setup<bfloat16, 128, 2, 4, 2>({.queries = 3, .value_factor = 100.0F});
  check_setup<bfloat16, 256, 4, 4, 2>({.tokens = 500});
  check_setup<float16, 64, 1, 4, 2>({.queries = 5});
  check_setup<float16, 128, 2, 4, 2>({.sequences = 1, .tokens = 2113});
  check_setup<float16, 128, 2, 4, 2>({.rule = retain_most_different::angle(0.0F), .capacity = 1100});
}

TEST_CASE("decoding over pages takes any number of query heads of a key head, and several queries", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t group : {1, 2, 3, 4, 8, 11, 20}) {
    check_setup<bfloat16, 128, 2>({.query_heads = 2 * group});
  }
  check_setup<bfloat16, 64, 1>({.queries = 5});
  check_setup<bfloat16, 64, 1>({.queries = 3, .is_causal = false});
  check_setup<float16, 64, 1>({.queries = 100});  // further back than the tail
}

TEST_CASE("decoding over pages where nothing, much or everything is retained, and of one layer", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_setup<bfloat16, 128, 2>({.rule = retain_most_different::none(), .capacity = 0});
  check_setup<bfloat16, 128, 2>({.rule = retain_most_different::fraction(0.4F), .capacity = 1100}, 3e-3);
  check_setup<bfloat16, 128, 2>({.rule = retain_most_different::angle(0.0F), .capacity = 1100}, 3e-3);
  check_setup<float16, 128, 2>({.rule = retain_most_different::angle(0.0F), .capacity = 1100});
  check_setup<bfloat16, 64, 1>({.format = {64, 4, 4, 1, 1}, .capacity = 0});
}

TEST_CASE("decoding over pages of sequences of any length", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int32_t length : {1, 15, 16, 17, 63, 64, 65, 127}) {  // all in the tail
    check_setup<bfloat16, 128, 2>({.sequences = 1, .tokens = length}, 4e-3);
  }
  for (std::int32_t length : {128, 129, 191, 192, 577, 640, 2113, 4500}) {
    check_setup<float16, 128, 2>({.sequences = 1, .tokens = length});
  }
  check_setup<float16, 128, 2>({.sequences = 1, .tokens = 1024, .window = 0});     // no tail
  check_setup<float16, 128, 2>({.sequences = 1, .tokens = 1500, .window = 1024});  // a long tail
  check_setup<float16, 128, 2>({.sequences = 3, .tokens = 900, .lengths = {900, 300, 64}, .pages = {13, 5, 1}});
}

TEST_CASE("blocks of a device go from work to work when decoding over pages", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_setup<float16, 64, 1>({.sequences = 60, .query_heads = 12, .key_heads = 12, .tokens = 420});
  check_setup<bfloat16, 64, 1>({.sequences = 60, .query_heads = 24, .key_heads = 6, .tokens = 200}, 3e-3);
}

TEST_CASE("sequences of nothing give zeros when decoded", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  decode_problem<bfloat16> const problem({.lengths = {1100, 0}});
  auto const expected = problem.expected(0);
  use_programs([&]<class Programs>(std::type_identity<Programs>) {
    auto const found = problem.run<float>(0, decode<Programs>);
    CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 1e-2);
    for (std::size_t i = found.result.size() / 2; i < found.result.size(); ++i) {
      CHECK(found.result[i] == 0.0);
    }
  });
}

TEST_CASE("magnitudes of queries and values make no difference to decoding", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float factor : {1e-4F, 1e-2F, 100.0F}) {
    check_setup<bfloat16, 128, 2>({.value_factor = factor});
  }
  check_setup<bfloat16, 128, 2>({.query_factor = 1e-6F});
  check_setup<bfloat16, 128, 2>({.query_factor = 30.0F}, 1e-2);  // a few tokens have all the weight
}

TEST_CASE("the number of splits makes no difference to decoding beyond rounding, and the same gives the same",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t splits : {1, 2, 5, 40}) {
    check_setup<bfloat16, 128, 2>({.sequences = 1, .tokens = 4000, .splits = splits});
  }
  decode_problem<bfloat16> const problem({.sequences = 1, .tokens = 4000});
  use_programs([&]<class Programs>(std::type_identity<Programs>) {
    auto const once = problem.run<bfloat16>(1, decode<Programs>);
    auto const again = problem.run<bfloat16>(1, decode<Programs>);
    CHECK(once.result == again.result);
    CHECK(once.log_sum_exp == again.log_sum_exp);
  });
}
