// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/algorithm/attention/attention_score.hpp>
#include <tessera/algorithm/attention/packed_codes.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/sage_attention2.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The whole workspace, and results, of the portable programs.
struct portable_results {
  std::vector<std::byte> bytes;
  attention_results found;
};

/// Runs the portable programs; if `IsNarrow`, only those of up to 64 channels, which are compiled sooner.
template <class Attention, bool IsNarrow, class T>
portable_results run_portably(cuda const& exec, attention_problem<T> const& p) {
  attention_shape const& s = p.shape;
  auto const queries = to_device(exec, p.queries);
  auto const keys = to_device(exec, p.keys);
  auto const values = to_device(exec, p.values);
  attention_inputs<T> const in{{queries.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                               {keys.data(), {s.batch, s.key_heads, s.keys, s.channels}},
                               {values.data(), {s.batch, s.key_heads, s.keys, s.channels}}};
  typename Attention::regions const layout("test", s);
  auto memory = to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(layout.plan.bytes()), std::byte{0xa5}));
  workspace const space(layout.plan, memory);
  auto const heads = layout.operands(space);
  buffer<T> result(exec, static_cast<std::int64_t>(p.queries.size()));
  buffer<float> lse(exec, s.batch * s.query_heads * s.queries);
  float const scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.channels)));
  run_portably(exec, quantize_call<typename Attention::method, T>{s, scale, in, heads, layout, space});
  attention_call<typename Attention::method, T> const call{
      s,
      p.options,
      heads,
      {{result.data(), {s.batch, s.query_heads, s.queries, s.channels}},
       {lse.data(), {s.batch, s.query_heads, s.queries}}}};
  if constexpr (IsNarrow) {
    using program_type = attention_tiles<typename Attention::method, T, no_bias, 64>;
    auto const program = tessera::detail::tiles_of<program_type>(call);
    exec.run(program, program.groups());
  } else {
    run_portably(exec, call);
  }
  auto const on_host = to_host(exec, result);
  auto const lse_on_host = to_host(exec, lse);
  portable_results made{to_host(exec, memory), {}};
  exec.wait();
  made.found = {as_doubles(on_host), std::vector<double>(lse_on_host.begin(), lse_on_host.end())};
  return made;
}

template <class T>
bool same_bytes(portable_results const& found, std::byte const* expected, region<T> where) {
  return where.count == 0 || std::memcmp(found.bytes.data() + where.offset, expected + where.offset,
                                         static_cast<std::size_t>(where.count) * sizeof(T)) == 0;
}

/// Checks that codes and scales are those of the host to the last bit, and results as near as sums in another order.
template <class Attention, bool IsNarrow = false, class T>
void check_on_device(attention_problem<T> const& p) {
  CAPTURE(p.shape.queries, p.shape.keys, p.shape.channels, p.options.is_causal);
  cuda const exec;
  auto const found = run_portably<Attention, IsNarrow>(exec, p);
  auto const made = make_operands<Attention>(cpu{}, p);
  typename Attention::regions const layout("test", p.shape);
  CHECK(same_bytes(found, made.memory.data(), layout.query_codes));
  CHECK(same_bytes(found, made.memory.data(), layout.query_scales));
  CHECK(same_bytes(found, made.memory.data(), layout.key_codes));
  CHECK(same_bytes(found, made.memory.data(), layout.key_scales));
  CHECK(same_bytes(found, made.memory.data(), layout.key_mean));
  CHECK(same_bytes(found, made.memory.data(), layout.value_codes));
  CHECK(same_bytes(found, made.memory.data(), layout.value_scales));
  CHECK(same_bytes(found, made.memory.data(), layout.value_mean));
  auto const expected = run_attention_problem<Attention, T>(cpu{}, p);
  CHECK(error_of(found.found.result, expected.result).relative_l1 < 4e-3);
  // Scores of mean queries are summed in another order, so that one of a row's weights may have the next code, which is
  // up to an eighth more: in a row of 100 keys that moves the sum by 1e-3.
  CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < (Attention::regions::smooths_queries ? 4e-3 : 1e-4));
}

}  // namespace

TEST_CASE("on a device codes are those of the host, and portable attention agrees", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 63, 64, 65, 127, 128, 129, 1100}) {
    auto p = make_attention_problem<bfloat16>({1, 4, 2, tokens, tokens, 64});
    check_on_device<sage_attention2, true>(p);
    p.options.is_causal = true;
    check_on_device<sage_attention2_int4, true>(p);
  }
  for (std::int64_t const channels : {16, 48, 128, 144, 256}) {
    check_on_device<sage_attention2>(make_attention_problem<float16>({2, 2, 1, 70, 300, channels}));
  }
  using whole = attention<smoothed<symmetric_quantizer<8, per_tensor>>, smoothed<symmetric_quantizer<8>>>;
  check_on_device<whole, true>(make_attention_problem<bfloat16>({1, 2, 2, 70, 300, 64}));
}

TEST_CASE("on a GPU queries and keys have scales of any granularity, and values may have 16 bits", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using half = scaled_float_quantizer<float16>;
  for (std::int64_t const tokens : {1, 65, 300}) {
    auto p = make_attention_problem<bfloat16>({1, 4, 2, tokens, 500, 64});
    check_on_device<attention<symmetric_quantizer<8, per_block>, half>, true>(p);
    check_on_device<attention<smoothed<symmetric_quantizer<8, per_warp>>, half>, true>(p);
    p.options.is_causal = true;
    check_on_device<attention<smoothed<symmetric_quantizer<8, per_token>>, smoothed<half>>, true>(p);
  }
}

TEST_CASE("on a GPU products of codes in pairs are those of codes in bytes, to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using in_bytes = attention<smoothed<smoothed<symmetric_quantizer<4, per_thread>, sampled_mean>, block_mean>,
                             sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;
  cuda const exec;
  for (std::int64_t const channels : {16, 48, 64}) {
    CAPTURE(channels);
    auto p = make_attention_problem<bfloat16>({1, 4, 2, 130, 300, channels});
    p.options.is_causal = channels == 64;
    auto const found = run_portably<sage_attention2_int4, true>(exec, p).found;
    auto const expected = run_portably<in_bytes, true>(exec, p).found;
    CHECK(found.result == expected.result);
    CHECK(found.log_sum_exp == expected.log_sum_exp);
  }
  for (std::int64_t const channels : {80, 128, 256}) {
    check_on_device<sage_attention2_int4>(make_attention_problem<bfloat16>({1, 2, 1, 70, 300, channels}));
  }
}

TEST_CASE("codes of 4 bits survive being two in a byte on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  std::int64_t const tokens = 384;
  std::vector<std::int8_t> codes(as_size(2 * 3 * tokens * 48));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::int8_t>(static_cast<int>(testing::hash(1, i) % 16) - 8);
  }
  auto const there = to_device(exec, codes);
  auto const packed = to_device(exec, std::vector<int4x2>(codes.size() / 2 + 1, int4x2{0x5a}));
  auto const back = to_device(exec, std::vector<std::int8_t>(codes.size() + 1, 99));
  head_view<int4x2> const half(const_cast<int4x2*>(packed.data()), {2, 3, tokens, 24});
  pack_int4_codes(exec, head_view<std::int8_t const>(there.data(), {2, 3, tokens, 48}), half);
  widen_int4_codes(exec, half, head_view<std::int8_t>(const_cast<std::int8_t*>(back.data()), {2, 3, tokens, 48}));
  std::vector<int4x2> expected(codes.size() / 2 + 1, int4x2{0x5a});
  pack_int4_codes(cpu{.threads = 1}, head_view<std::int8_t const>(codes.data(), {2, 3, tokens, 48}),
                  head_view<int4x2>(expected.data(), {2, 3, tokens, 24}));
  auto const found = to_host(exec, packed);
  CHECK(std::memcmp(found.data(), expected.data(), found.size()) == 0);
  codes.push_back(99);
  CHECK(to_host(exec, back) == codes);
}

TEST_CASE("a score of results on a GPU is the host's", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (std::int64_t const tokens : {1, 7, 3000}) {
    auto const expected = attention_samples<float>(testing::gauss{}, 1, 1, 2 * tokens * 48);
    auto found = expected;
    auto const noise = attention_samples<float>(testing::gauss{}, 2, 1, 2 * tokens * 48);
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i] += 0.2F * noise[i];
    }
    auto const there = to_device(exec, found);
    auto const better = to_device(exec, expected);
    auto score = to_device(exec, std::vector<float>{-77.0F, -77.0F});
    auto const plan = attention_score::plan_measure(exec, {1, 2, 2, tokens, tokens, 48});
    auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
    attention_score::measure(exec, head_view<float const>(there.data(), {1, 2, tokens, 48}),
                             head_view<float const>(better.data(), {1, 2, tokens, 48}), {score.data(), 1},
                             workspace(plan, memory));
    auto const error = error_of(as_doubles(found), as_doubles(expected));
    auto const scores = to_host(exec, score);
    CHECK(static_cast<double>(scores[0]) == Approx(error.cosine * (1 - error.relative_l1)).epsilon(1e-6));
    CHECK(scores[1] == -77.0F);
  }
}
