// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/attention/decode_attention.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/attention_reference.hpp"
#include "support/cache_on_device.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/take_call.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

struct dense_setup {
  attention_shape shape = {2, 8, 2, 1, 700, 128};
  std::vector<std::int32_t> lengths = {};
  bool is_causal = true;
  bool has_tokens_first = false;  ///< sequence x token x head x channel
  std::int64_t block_tokens = 0;  ///< 0: no blocks
};

/// Where a token's channels lie, in elements, in memory of the setup's layout.
struct dense_layout {
  dense_setup setup;
  std::vector<std::int32_t> blocks;
  std::int64_t of_sequence;  ///< blocks of a sequence

  explicit dense_layout(dense_setup const& with)
      : setup(with), of_sequence(with.block_tokens > 0 ? divide_up(with.shape.keys, with.block_tokens) : 1) {
    std::int64_t const count = with.shape.batch * of_sequence;
    for (std::int64_t i = 0; i < count; ++i) {
      blocks.push_back(static_cast<std::int32_t>(count - 1 - i));
    }
  }
  std::int64_t tokens() const { return setup.block_tokens > 0 ? setup.block_tokens : setup.shape.keys; }
  template <class T>
  head_view<T const> view(T const* data) const {
    attention_shape const& s = setup.shape;
    std::int64_t const count = setup.block_tokens > 0 ? s.batch * of_sequence : s.batch;
    if (setup.has_tokens_first) {
      return head_view<T const>(data, {count, tokens(), s.key_heads, s.channels}).transposed(1, 2);
    }
    return {data, {count, s.key_heads, tokens(), s.channels}};
  }
  template <class T>
  std::vector<T> arranged(std::vector<T> const& from) const {
    attention_shape const& s = setup.shape;
    std::vector<T> made(as_size(s.batch * of_sequence * s.key_heads * tokens() * s.channels),
                        store<T>(std::numeric_limits<float>::quiet_NaN()));  // what is beyond the end
    auto const to = view<T>(made.data());
    for (std::size_t i = 0; i < from.size(); ++i) {
      auto const at = static_cast<std::int64_t>(i);
      std::int64_t const token = at / s.channels % s.keys;
      std::int64_t const head = at / s.channels / s.keys % s.key_heads;
      std::int64_t const sequence = at / s.channels / s.keys / s.key_heads;
      std::int64_t const block =
          setup.block_tokens > 0 ? blocks[as_size(sequence * of_sequence + token / tokens())] : sequence;
      const_cast<T&>(to(block, head, token % tokens(), at % s.channels)) = from[i];
    }
    return made;
  }
};

template <class T, class Decode>
void check_setup(dense_setup const& setup, double tolerance, Decode const& decode) {
  attention_shape const& s = setup.shape;
  cuda const exec;
  auto problem = make_attention_problem<T>(s);
  problem.options.is_causal = setup.is_causal;
  problem.key_lengths = setup.lengths;
  dense_layout const layout(setup);
  auto const keys = on_device(exec, layout.arranged(problem.keys));
  auto const values = on_device(exec, layout.arranged(problem.values));
  auto const queries = on_device(exec, problem.queries);
  auto const blocks = on_device(exec, layout.blocks);
  std::vector<std::int32_t> const some = setup.lengths.empty() ? std::vector<std::int32_t>{0} : setup.lengths;
  auto const lengths = on_device(exec, some);
  auto result = on_device(exec, std::vector<float>(problem.queries.size(), -77.0F));
  auto lse = on_device(exec, std::vector<float>(as_size(s.batch * s.query_heads * s.queries), -77.0F));
  cached_attention_regions const regions("test", s);
  auto space = on_device(exec, std::vector<std::byte>(as_size(regions.plan.bytes()), std::byte{0xff}));
  decode_attention_call<T, float> call{s,
                                       {layout.view<T>(keys.data()), layout.view<T>(values.data())},
                                       {queries.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                       1.0F / std::sqrt(static_cast<float>(s.channels)),
                                       setup.is_causal,
                                       {{result.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                        {lse.data(), {s.batch, s.query_heads, s.queries}}}};
  if (setup.block_tokens > 0) {
    call.source.blocks = {blocks.data(), {s.batch, layout.of_sequence}};
  }
  if (!setup.lengths.empty()) {
    call.source.lengths = {lengths.data(), lengths.size()};
  }
  call.partials = regions.partials(workspace(regions.plan, space));
  decode(exec, call);
  auto const expected = attention_by_formula(problem);
  auto const found = as_doubles(on_host(exec, result));
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, setup.block_tokens);
  CHECK(error_of(found, expected.result).relative_l1 < tolerance);
  CHECK(farthest(as_doubles(on_host(exec, lse)), expected.log_sum_exp) < 1e-3);
}

/// Decodes by the fast program of the device: that of sm_90, or the one of GPUs without TMA.
template <class Call>
bool decode_fast(cuda const& exec, Call const& call) {
  return is_hopper() ? take_call<dense_decode_model>(exec, call) : take_call<dense_decode_by_warps_model>(exec, call);
}

template <class T, int Channels>
void check_fast(dense_setup setup) {
  setup.shape.channels = Channels;
  check_setup<T>(setup, std::is_same_v<T, float16> ? 1e-3 : 4e-3,
                 [](auto const& exec, auto const& call) { REQUIRE(decode_fast(exec, call)); });
}

}  // namespace

TEST_CASE("decoding over keys as they are is attention, for every width of heads", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_fast<bfloat16, 64>({});
  check_fast<bfloat16, 128>({});
  check_fast<bfloat16, 256>({});
  check_fast<float16, 64>({});
  check_fast<float16, 128>({});
}

TEST_CASE("decoding takes any number of query heads and queries, and any lengths", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t group : {1, 3, 4, 8, 20}) {
    check_fast<float16, 128>({.shape = {2, 2 * group, 2, 1, 555, 128}});
  }
  check_fast<float16, 128>({.shape = {1, 4, 2, 6, 555, 128}});
  check_fast<float16, 128>({.shape = {1, 4, 2, 6, 555, 128}, .is_causal = false});
  for (std::int64_t keys : {1, 15, 16, 17, 31, 32, 33, 255, 256, 257, 3000}) {
    check_fast<float16, 128>({.shape = {1, 4, 2, 1, keys, 128}});
  }
  check_fast<float16, 128>({.shape = {3, 4, 2, 1, 700, 128}, .lengths = {700, 333, 0}});
}

TEST_CASE("blocks of a device go from work to work when decoding", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_fast<float16, 128>({.shape = {60, 12, 12, 1, 420, 128}});
  check_fast<bfloat16, 64>({.shape = {60, 24, 6, 1, 200, 64}});
}

TEST_CASE("decoding takes heads side by side, and blocks of tokens", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_fast<float16, 128>({.has_tokens_first = true});
  check_fast<float16, 64>({.has_tokens_first = true});
  check_fast<float16, 128>({.block_tokens = 64});
  check_fast<bfloat16, 128>({.lengths = {650, 129}, .has_tokens_first = true, .block_tokens = 32});
}

TEST_CASE("decoding of other widths and blocks is by the portable program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const decode = [](auto const& exec, auto const& call) { tessera::run(exec, call); };
  check_setup<bfloat16>({.shape = {2, 6, 2, 2, 300, 80}}, 1e-4, decode);
  check_setup<float16>({.shape = {2, 4, 4, 1, 300, 128}, .block_tokens = 24}, 1e-4, decode);
}

TEST_CASE("on a device, too, decode_attention is attention", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const decode = [](auto const& exec, auto const& call) {
    using value_type = typename std::remove_cvref_t<decltype(call)>::value_type;
    decode_attention_inputs<value_type> const in{call.queries, call.source, call.query_lengths};
    attention_shape shape = call.shape;
    shape.keys = 704;  // with blocks there is room for so many
    auto const plan = decode_attention::plan_forward(exec, shape);
    buffer<std::byte> memory(exec, plan.bytes());
    decode_attention::forward(exec, in, {.is_causal = call.is_causal}, call.out, workspace(plan, memory));
    exec.wait();
  };
  check_setup<bfloat16>({}, 4e-3, decode);
  check_setup<float16>({.lengths = {650, 129}, .block_tokens = 32}, 1e-3, decode);
  check_setup<bfloat16>({.shape = {2, 6, 2, 2, 300, 80}}, 1e-4, decode);
}
