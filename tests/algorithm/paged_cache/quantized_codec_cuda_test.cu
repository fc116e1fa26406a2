// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/paged_cache/kivi_cache.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/merge/slerp.hpp>
#include <tessera/quantize/symmetric.hpp>

#include "support/cache_on_device.hpp"
#include "support/catch.hpp"
#include "support/coded_part.hpp"
#include "support/cuda.hpp"
#include "support/page_runs.cuh"

using namespace tessera;
using namespace tessera_test;

namespace quantized_codec_cuda_test {

constexpr std::int64_t heads = 2;
constexpr std::int64_t channels = 96;
constexpr std::int64_t tokens = 150;

/// What a device makes of the same tokens as a host's coded_part.
template <class Cache>
struct part_on_device {
  cuda exec;
  Cache cache;
  buffer<std::int32_t> blocks;
  buffer<std::int32_t> lengths;
  buffer<std::int32_t> pages;

  part_on_device(coded_part<Cache> const& host, layer_pair<bfloat16> const& data, cache_layers const& layers)
      : cache(exec, host.extents, {.parts = {layers}}),
        blocks(on_device(exec, host.blocks)),
        lengths(on_device(exec, host.lengths)),
        pages(on_device(exec, std::vector<std::int32_t>{0})) {
    buffer<bfloat16> lists[2][2];
    cache_inputs<bfloat16> inputs;
    for (int layer = 0; layer < 2; ++layer) {
      for (int which = 0; which < 2; ++which) {
        lists[layer][which] = on_device(exec, data.part[layer][which]);
        head_view<bfloat16 const> const all(lists[layer][which].data(), {1, heads, tokens, channels});
        (which == key_part ? inputs.keys : inputs.values)[layer] = all;
      }
    }
    auto const plan = cache.plan_append(exec, {1, tokens});
    buffer<std::byte> memory(exec, plan.bytes());
    cache.append(exec, 0, inputs, sequences(), {tokens, {}}, workspace(plan, memory));
    cache.advance(exec, sequences(), pages.view(), tokens);
    exec.wait();
  }

  cache_sequences sequences() const { return {{blocks.data(), {1, 8}}, {}, lengths.view(), pages.view(), 1}; }

  std::vector<std::byte> page(std::int64_t block, std::int64_t head) const {
    auto const& of = cache.memory(0);
    int const bytes = cache.codec().page_bytes(of.format);
    std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
    exec.copy(array_view<std::byte const>(of.page_of(cache.codec(), block, head), bytes),
              array_view<std::byte>(copy.data(), bytes));
    exec.wait();
    return copy;
  }
  std::vector<float> restored(int layer, int which) const {
    buffer<float> both[2] = {buffer<float>(exec, heads * tokens * channels),
                             buffer<float>(exec, heads * tokens * channels)};
    cache.restore(exec, layer, sequences(), head_view<float>(both[0].data(), {1, heads, tokens, channels}),
                  head_view<float>(both[1].data(), {1, heads, tokens, channels}));
    return on_host(exec, both[which]);
  }
  std::vector<float> attended(int layer, std::vector<bfloat16> const& queries) const {
    auto const on = on_device(exec, queries);
    head_view<bfloat16 const> const q(on.data(), {1, 2 * heads, 1, channels});
    auto const plan = cache.plan_attend(exec, cache.shape_of(q, sequences()));
    buffer<std::byte> memory(exec, plan.bytes());
    buffer<float> result(exec, on.size());
    attention_outputs<float> const out{{result.data(), {1, 2 * heads, 1, channels}}};
    cache.attend(exec, layer, q, sequences(), {.is_causal = true}, out, workspace(plan, memory));
    return on_host(exec, result);
  }
};

/// Checks a device against the host; bytes of pages where codes alone decide about them.
template <class Cache>
void check_device(cache_layers const& layers, bool has_same_bytes) {
  auto const data = make_layer_pair<bfloat16>(1, heads, tokens, channels);
  coded_part<Cache> host(heads, channels, layers);
  host.append(data, 0, tokens);
  part_on_device<Cache> const device(host, data, layers);
  cache_memory<bfloat16> const& of = host.cache.memory(0);
  int const bytes = host.cache.codec().page_bytes(of.format);
  for (std::int64_t number = 0; number < 2 * heads && has_same_bytes; ++number) {
    std::int64_t const block = host.blocks[as_size(number / heads)];
    std::byte const* const page = of.page_of(host.cache.codec(), block, number % heads);
    CHECK((device.page(block, number % heads) == std::vector<std::byte>(page, page + bytes)));
  }
  auto const queries = attention_samples<bfloat16>(testing::gauss{}, 3, 1, 2 * heads * channels);
  for (int layer = 0; layer < layers.layers; ++layer) {
    for (int which : {key_part, value_part}) {
      auto const expected = as_doubles(host.restored(layer, which));
      CHECK(error_of(as_doubles(device.restored(layer, which)), expected).relative_l1 < 1e-5);
    }
    auto const expected = as_doubles(host.attended(layer, queries, 1));
    CHECK(error_of(as_doubles(device.attended(layer, queries)), expected).relative_l1 < 1e-5);
  }
}

}  // namespace quantized_codec_cuda_test

using namespace quantized_codec_cuda_test;

TEST_CASE("a GPU writes the pages of KIVI that a CPU writes, and reads the same", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_device<kivi_cache>(kivi_cache::single(), true);
}

TEST_CASE("a GPU writes and reads directions of any quantizer, of both layers of a pair", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using codec_type =
      quantized_codec<asymmetric_half_quantizer<3, 16>, symmetric_quantizer<8, 32>, page_vectors::directions>;
  using cache_type = cross_layer_cache<slerp_merger<float>, retain_most_different, codec_type>;
  auto layers = cache_type::pair();
  layers.retention = retain_most_different::angle(1.0F);
  layers.row_capacity = 16;
  check_device<cache_type>(layers, false);
}

TEST_CASE("it is said that a GPU has no programs of its own for pages of a quantized codec", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  kivi_cache const cache(exec, {1, 256, 4, heads, channels, 64}, {.parts = {kivi_cache::single()}});
  explanation const found = cache.programs_of(exec, 0);
  REQUIRE(found.choices.size() == 2);
  CHECK((found.choices[0].is_slower() && found.choices[1].is_slower()));
  CHECK_THAT(found.text(), contains(cuda::is_compiled_for<900> ? "pages are of another codec than direction_codec"
                                                               : "this source is not compiled for sm_90a"));
}
