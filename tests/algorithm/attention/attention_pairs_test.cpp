// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using four = symmetric_quantizer<4, per_thread>;
/// sage_attention2_int4 with each code in a byte.
using in_bytes = attention<smoothed<smoothed<four, sampled_mean>, block_mean>,
                           sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;
/// sage_attention2_int4 as programs run it that multiply bytes.
using widened = attention<smoothed<smoothed<in_high_bits<four>, sampled_mean>, block_mean>,
                          sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;
static_assert(std::is_same_v<widened::method, widened_method<sage_attention2_int4::method>>);

template <class T, int Rank>
bool same_bits(view<T, Rank> a, view<T, Rank> b) {
  return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.data, b.data, as_size(a.size()) * sizeof(T)) == 0);
}

/// Codes that differ, those of padding included.
template <class Pairs, class Bytes>
int wrong_codes(Pairs const& pairs, Bytes const& bytes) {
  auto const& all = bytes.codes;
  REQUIRE(2 * pairs.codes.extent(3) == all.extent(3));
  int wrong = 0;
  for (std::int64_t i = 0; i < all.size(); ++i) {
    std::int64_t const c = i % all.extent(3);
    std::int64_t const token = i / all.extent(3) % all.extent(2);
    std::int64_t const head = i / all.extent(3) / all.extent(2) % all.extent(1);
    std::int64_t const b = i / all.extent(3) / all.extent(2) / all.extent(1);
    int4x2 const pair = pairs.codes(b, head, token, c / 2);
    wrong += all(b, head, token, c) == (c % 2 == 0 ? low(pair) : high(pair)) ? 0 : 1;
    wrong += all(b, head, token, c) == pairs.code(b, head, token, c) ? 0 : 1;
  }
  return wrong;
}

template <class Executor>
void check_same(Executor const& exec, attention_problem<bfloat16> const& p) {
  CAPTURE(p.shape.queries, p.shape.keys, p.shape.channels);
  auto const bytes = make_operands<in_bytes>(exec, p);
  auto const pairs = make_operands<sage_attention2_int4>(exec, p);
  CHECK(wrong_codes(pairs.heads.queries, bytes.heads.queries) == 0);
  CHECK(wrong_codes(pairs.heads.keys, bytes.heads.keys) == 0);
  CHECK(same_bits(pairs.heads.queries.scales, bytes.heads.queries.scales));
  CHECK(same_bits(pairs.heads.queries.corrections, bytes.heads.queries.corrections));
  CHECK(same_bits(pairs.heads.keys.scales, bytes.heads.keys.scales));
  CHECK(same_bits(pairs.heads.keys.mean, bytes.heads.keys.mean));
  auto const expected = run_attention_problem<in_bytes, float>(exec, p);
  auto const found = run_attention_problem<sage_attention2_int4, float>(exec, p);
  CHECK(found.result == expected.result);
  CHECK(found.log_sum_exp == expected.log_sum_exp);
  auto const in_high_bits = run_attention_problem<widened, float>(exec, p);
  CHECK(in_high_bits.result == expected.result);
  CHECK(in_high_bits.log_sum_exp == expected.log_sum_exp);
}

}  // namespace

TEST_CASE("codes of 4 bits in pairs are those in bytes, and results are the same bits", "[host][slow][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const channels : {16, 32, 48, 64, 80, 128, 144, 256}) {
    check_same(exec, make_attention_problem<bfloat16>({1, 2, 1, 70, 140, channels}));
  }
  for (std::int64_t const tokens : {1, 63, 64, 65, 127, 128, 129}) {
    auto p = make_attention_problem<bfloat16>({1, 4, 2, tokens, tokens, 64});
    p.options.is_causal = true;
    check_same(exec, p);
  }
  auto p = make_attention_problem<bfloat16>({3, 2, 1, 20, 1100, 48});  // keys are shared
  p.query_lengths = {20, 7, 0};
  p.key_lengths = {1100, 600, 3};
  check_same(exec, p);
  check_same(testing::adversary{.seed = 5}, make_attention_problem<bfloat16>({1, 2, 1, 70, 140, 48}));
}

TEST_CASE("codes in pairs take half of the memory", "[host]") {
  attention_shape const s{2, 4, 2, 100, 300, 48};
  in_bytes::regions const bytes("test", s);
  sage_attention2_int4::regions const pairs("test", s);
  CHECK(pairs.key_codes.count == 2 * 2 * 384 * 24);
  CHECK(pairs.query_codes.count == 2 * 4 * 128 * 24);
  CHECK(bytes.plan.bytes() - pairs.plan.bytes() == 2 * 2 * 384 * 24 + 2 * 4 * 128 * 24);
}
