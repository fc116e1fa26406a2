// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/paged_cache/direction_codecs.hpp>
#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/merge/slerp.hpp>
#include <tessera/minicache.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/page_runs.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Copies a list to the device.
template <class T>
buffer<T> on_device(cuda const& exec, T const* data, std::size_t count) {
  buffer<T> copy(exec, static_cast<std::int64_t>(count));
  exec.copy(array_view<T const>(data, static_cast<std::int64_t>(count)), copy.view());
  return copy;
}
template <class T>
std::vector<T> on_host(cuda const& exec, buffer<T> const& list) {
  std::vector<T> copy(as_size(list.size()));
  exec.copy(list.view(), array_view<T>(copy.data(), list.size()));
  exec.wait();
  return copy;
}

template <class T>
bool is_same(std::vector<T> const& found, T const* expected) {
  return std::memcmp(static_cast<void const*>(found.data()), expected, found.size() * sizeof(T)) == 0;
}

/// Compares attention over the same cache on both sides.
template <class T>
void check_attention(cuda const& exec, cache_problem<T> const& host, cache_memory<T> const& memory,
                     buffer<std::int32_t> const& blocks) {
  attention_shape const s{2, 6, 2, 2, host.lengths[0], memory.format.channels};
  std::int64_t const values = s.batch * s.query_heads * s.queries * s.channels;
  auto const queries = attention_samples<T>(testing::gauss{}, 5, 1, values);
  auto const their_queries = on_device(exec, queries.data(), queries.size());
  auto const lengths = on_device(exec, host.lengths.data(), host.lengths.size());
  buffer<float> result(exec, values);
  buffer<float> lse(exec, values / s.channels);
  std::vector<float> expected(as_size(values));
  std::vector<float> expected_lse(as_size(values / s.channels));
  cached_attention_regions const regions("test", s, 3);
  buffer<std::byte> space(exec, regions.plan.bytes());
  buffer<std::byte> host_space(regions.plan.bytes());
  auto const call = [&](cache_memory<T> const& cache, cache_sequences const& sequences, T const* q, float* out,
                        float* sums, workspace const& with) {
    return cached_attention_call<T, float>{
        s,
        cache,
        sequences,
        cache.format.layers - 1,
        {q, {s.batch, s.query_heads, s.queries, s.channels}},
        0.1F,
        true,
        {{out, {s.batch, s.query_heads, s.queries, s.channels}}, {sums, {s.batch, s.query_heads, s.queries}}},
        regions.partials(with)};
  };
  run_portably(exec, call(memory, {{blocks.data(), {2, host.most_pages}}, {}, lengths.view(), {}, 2},
                          their_queries.data(), result.data(), lse.data(), workspace(regions.plan, space)));
  tessera::run(cpu{}, call(host.memory, host.sequences(), queries.data(), expected.data(), expected_lse.data(),
                           workspace(regions.plan, host_space)));
  CHECK(error_of(as_doubles(on_host(exec, result)), as_doubles(expected)).relative_l1 < 1e-5);
  CHECK(farthest(as_doubles(on_host(exec, lse)), as_doubles(expected_lse)) < 1e-5);
}

/// Compares caches that both sides fill in two appends.
template <class T>
void check_format(cache_page_format const& format, std::int64_t tokens) {
  cuda const exec;
  std::int64_t const heads = 2;
  std::int64_t const first = tokens / 2 + 3;
  auto const pair = make_layer_pair<T>(2, heads, tokens, format.channels);
  auto const rule = retain_most_different::range(0.3F);
  cache_problem<T> host(format, heads, 2, tokens);
  std::size_t const page_bytes = as_size(host.memory.page_bytes(2 * host.most_pages));
  auto pages = on_device(exec, host.memory.pages, page_bytes);
  auto tail = on_device(exec, host.tail.data(), host.tail.size());
  auto rows = on_device(exec, host.rows.data(), host.rows.size());
  auto counts = on_device(exec, host.row_counts.data(), host.row_counts.size());
  auto refused = on_device(exec, host.refused.data(), host.refused.size());
  auto thresholds = on_device(exec, host.thresholds.data(), host.thresholds.size());
  auto blocks = on_device(exec, host.blocks.data(), host.blocks.size());
  cache_memory<T> memory = host.memory;
  memory.pages = pages.data();
  memory.tail = tail.data();
  memory.rows = rows.data();
  memory.row_counts = counts.data();
  memory.refused_rows = refused.data();
  memory.thresholds = thresholds.data();
  buffer<T> inputs[2][2];
  head_view<T const> all[2][2];
  for (int layer = 0; layer < 2; ++layer) {
    for (int which = 0; which < 2; ++which) {
      inputs[layer][which] = on_device(exec, pair.part[layer][which].data(), pair.part[layer][which].size());
      all[layer][which] = {inputs[layer][which].data(), {2, heads, tokens, format.channels}};
    }
  }
  for (auto [from, count] : {std::pair<std::int64_t, std::int64_t>{0, first}, {first, tokens - first}}) {
    host.append(cpu{}, pair.inputs(from, count), rule);
    auto const lengths = on_device(exec, host.lengths.data(), host.lengths.size());
    cache_append_regions const regions("test", 2, count, heads);
    buffer<std::byte> space_memory(exec, regions.plan.bytes());
    workspace const space(regions.plan, space_memory);
    cache_inputs<T> const part{{all[0][0].slice(2, from, count), all[1][0].slice(2, from, count)},
                               {all[0][1].slice(2, from, count), all[1][1].slice(2, from, count)}};
    tessera::detail::append_portably(
        exec,
        cache_append_call<slerp_merger<float>, T>{
            {},
            rule,
            false,
            {memory, part, {{blocks.data(), {2, host.most_pages}}, {}, lengths.view(), {}, 2}, count, regions.pages},
            regions.rows_in(space),
            regions.marks_in(space)});
    exec.wait();
  }
  CAPTURE(format.channels, format.key_bits, format.value_bits, format.layers);
  CHECK(is_same(on_host(exec, pages), host.memory.pages));
  CHECK(is_same(on_host(exec, tail), host.tail.data()));
  CHECK(is_same(on_host(exec, rows), host.rows.data()));
  CHECK(is_same(on_host(exec, counts), host.row_counts.data()));
  CHECK(is_same(on_host(exec, thresholds), host.thresholds.data()));
  CHECK((host.row_counts[0] > 0) == (format.layers == 2));  // an unmerged layer retains nothing
  check_attention(exec, host, memory, blocks);
}

}  // namespace

TEST_CASE("portable programs make the same bytes of a cache wherever they run", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_format<bfloat16>({128, 4, 4, 2, 2}, 700);
  check_format<float16>({64, 4, 4, 1, 2}, 700);
  check_format<bfloat16>({64, 3, 2, 1, 2}, 300);
  check_format<bfloat16>({96, 8, 3, 2, 2}, 300);
  check_format<float16>({256, 2, 8, 4, 2}, 300);
  check_format<bfloat16>({128, 4, 4, 1, 1}, 300);
}

TEST_CASE("GPUs without TMA attend to pages by another program, and it is explained why not", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  if (is_hopper()) {
    WARN("this source attends to pages by TMA");
    return;
  }
  auto const attending = [&](std::int64_t channels, cache_layers const& layers) {
    minicache const cache(exec, {1, 256, 4, 1, channels, 64}, {.parts = {layers}});
    explanation const found = cache.programs_of(exec, 0);
    exec.wait();
    REQUIRE(found.choices.size() == 2);
    return found;
  };
  CHECK(!attending(128, minicache::pair()).choices[1].is_portable);
  CHECK_THAT(
      attending(128, minicache::pair()).text(),
      contains("cross_layer_cache.attend: attend_pages (cp.async, mma.sync)") && contains("not compiled for sm_90a"));
  CHECK(!attending(96, minicache::pair()).choices[1].is_portable);
  explanation const other = attending(192, minicache::pair());
  CHECK(other.choices[1].is_slower());
  CHECK_THAT(other.text(), contains("pages have other bits, channels or groups than the device's programs"));
}

TEST_CASE("it is explained for which pages a GPU has programs of its own", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  if (!is_hopper()) {
    WARN("this GPU has no program of its own that makes pages");
    return;
  }
  auto const programs_of = [&]<class Cache>(std::type_identity<Cache>, std::int64_t channels,
                                            cache_layers const& layers) {
    Cache const cache(exec, {1, 256, 4, 1, channels, 64}, {.parts = {layers}});
    explanation const found = cache.programs_of(exec, 0);
    REQUIRE(found.choices.size() == 2);
    exec.wait();
    return found;
  };
  auto const programs = [&](std::int64_t channels, cache_layers const& layers) {
    return programs_of(std::type_identity<minicache>{}, channels, layers);
  };
  auto const programs_of_several = [&](std::int64_t channels, cache_layers const& layers) {
    using codec =
        direction_codecs<direction_codec<4>, direction_codec<3>, direction_codec<8>, direction_codec<4, 64, 2>>;
    return programs_of(std::type_identity<cross_layer_cache<slerp_merger<float>, retain_most_different, codec>>{},
                       channels, layers);
  };
  explanation const usual = programs(128, minicache::pair());
  CHECK(usual.is_fast());
  CHECK_THAT(usual.text(), contains("cross_layer_cache.append: compress_pages") &&
                               contains("cross_layer_cache.attend: attend_pages"));
  explanation const narrow = programs(96, minicache::pair());  // the pages of minicache with 96 channels
  CHECK((narrow.choices[0].is_slower() && !narrow.choices[1].is_portable));
  CHECK_THAT(narrow.text(),
             contains("pages have other bits, channels or groups than the device's programs that make them"));
  cache_layers layers = minicache::pair();
  layers.whole_tokens = true;
  CHECK(programs(128, layers).choices[0].is_slower());
  layers = minicache::pair();
  layers.value_bits = 3;
  CHECK((programs(128, layers).choices[0].is_slower() && programs(128, layers).choices[1].is_slower()));
  layers.value_bits = 2;
  CHECK(programs_of_several(128, layers).is_fast());
  explanation const unnamed = programs(128, layers);
  CHECK((unnamed.choices[0].is_slower() && unnamed.choices[1].is_slower()));
  CHECK_THAT(unnamed.text(),
             contains("pages have other bits or groups than the cache's codec: direction_codecs takes several"));
  CHECK(programs(192, minicache::pair()).choices[1].is_slower());
  layers = minicache::single();
  layers.key_bits = layers.value_bits = 3;
  CHECK(programs_of_several(64, layers).is_fast());
  layers.key_bits = layers.value_bits = 8;  // attention alone
  explanation const eight = programs_of_several(64, layers);
  CHECK((eight.choices[0].is_slower() && !eight.choices[1].is_portable));
}
