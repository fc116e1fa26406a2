// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests the scores of mean queries by tensor cores, and the means themselves, against sums in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/program/attention/detail/query_corrections.cuh>

#include "support/attention_terms.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The floats of a region.
std::vector<float> floats_of(std::vector<std::byte> const& bytes, region<float> where) {
  std::vector<float> floats(as_size(where.count));
  std::memcpy(floats.data(), bytes.data() + where.offset, floats.size() * sizeof(float));
  return floats;
}

/// The largest error of corrections, in units of the sum of all magnitudes that are added up; infinite where keys that
/// do not exist have other corrections than zeros.
template <class T>
double error_of_corrections(std::vector<std::byte> const& bytes, attention_problem<T> const& p) {
  attention_shape const& s = p.shape;
  smoothed_queries::regions const layout("test", s);
  auto const corrections = floats_of(bytes, layout.corrections);
  auto const query_means = floats_of(bytes, layout.query_means);
  auto const key_mean = floats_of(bytes, layout.key_mean);
  double const factor = std::log2(std::exp(1.0)) / std::sqrt(static_cast<double>(s.channels));
  std::int64_t const blocks = layout.query_blocks();
  std::int64_t const padded = padded_tokens(s.keys);
  double most = 0;
  for (std::int64_t row = 0; row < s.batch * s.query_heads * blocks; ++row) {
    std::int64_t const sequence = row / blocks / s.query_heads;
    std::int64_t const head = sequence * s.key_heads + row / blocks % s.query_heads / (s.query_heads / s.key_heads);
    std::int64_t const length = p.key_lengths.empty() ? s.keys : p.key_lengths[as_size(sequence)];
    for (std::int64_t key = 0; key < padded; ++key) {
      double sum = 0;
      double magnitudes = 0;
      for (std::int64_t channel = 0; channel < s.channels && key < length; ++channel) {
        double const mean = query_means[as_size(row * s.channels + channel)];
        double const of_key = load(p.keys[as_size((head * s.keys + key) * s.channels + channel)]);
        double const of_mean = key_mean[as_size(head * s.channels + channel)];
        sum += factor * mean * (of_key - of_mean);
        magnitudes += factor * std::abs(mean) * (std::abs(of_key) + std::abs(of_mean));
      }
      double const error = std::abs(static_cast<double>(corrections[as_size(row * padded + value_slot(key))]) - sum);
      double const relative = error == 0 ? 0 : error / magnitudes;
      most = std::isnan(relative) ? HUGE_VAL : std::max(most, relative);
    }
  }
  return most;
}

/// Tiles whose range is not that of their corrections, to the last bit.
template <class T>
int wrong_ranges(std::vector<std::byte> const& bytes, attention_problem<T> const& p) {
  smoothed_queries::regions const layout("test", p.shape);
  auto const corrections = floats_of(bytes, layout.corrections);
  std::vector<correction_range> ranges(as_size(layout.correction_ranges.count));
  std::memcpy(ranges.data(), bytes.data() + layout.correction_ranges.offset, ranges.size() * sizeof(correction_range));
  int wrong = 0;
  for (std::size_t tile = 0; tile < ranges.size(); ++tile) {
    auto const first = corrections.begin() + static_cast<std::ptrdiff_t>(128 * tile);
    auto const expected =
        correction_range::of(*std::min_element(first, first + 128), *std::max_element(first, first + 128));
    wrong += ranges[tile].least == expected.least && ranges[tile].spread == expected.spread ? 0 : 1;
  }
  return wrong;
}

/// Checks codes, scales and means to the last bit, and corrections.
template <class T>
void check_smoothed(attention_problem<T> const& p, head_layout layout = head_layout::heads_first) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels);
  auto const found = run_on_device<smoothed_queries, T>(cuda{}, p, layout).bytes;
  check_codes<smoothed_queries>(found, p);
  smoothed_queries::regions const regions("test", s);
  CHECK(is_same(found, make_operands<smoothed_queries>(cpu{}, p).memory.data(), regions.query_means));
  CHECK(error_of_corrections(found, p) < 0x1p-20);
  CHECK(wrong_ranges(found, p) == 0);
}

}  // namespace

TEST_CASE("means of queries on a GPU are those of the host, and their scores are sums in fp32", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 64, 80, 128, 144, 256}) {
    for (std::int64_t const tokens : {1, 7, 63, 64, 65, 127, 128, 129, 500}) {
      check_smoothed(make_attention_problem<bfloat16>({1, 2, 1, tokens, 200, channels}));
      check_smoothed(make_attention_problem<bfloat16>({2, 2, 2, 50, tokens, channels}), head_layout::tokens_first);
    }
  }
  for (std::int64_t const channels : {64, 112, 256}) {
    check_smoothed(make_attention_problem<float16>({1, 4, 2, 200, 333, channels}));
  }
}

TEST_CASE("more means of queries than a block takes have scores on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_smoothed(make_attention_problem<bfloat16>({1, 10, 2, 3900, 130, 64}));
  check_smoothed(make_attention_problem<bfloat16>({2, 3, 1, 5000, 129, 128}));
}

TEST_CASE("sequences of smoothed queries have lengths on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    auto p = make_attention_problem<bfloat16>({4, 2, 2, 200, 300, channels});
    p.query_lengths = {200, 0, 77, 5};
    p.key_lengths = {300, 128, 0, 9};
    check_smoothed(p);
  }
}

TEST_CASE("infinities and NaNs of smoothed queries and keys spoil on a GPU the codes that they spoil on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const odd : {infinity, -infinity, std::nanf("")}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 300, 64});
    p.queries[70 * 64 + 3] = store<bfloat16>(odd);
    auto const found = run_on_device<smoothed_queries, bfloat16>(cuda{}, p).bytes;
    check_codes<smoothed_queries>(found, p);
    CHECK(error_of_corrections(found, p) < 0x1p-20);  // a mean passes over what is not finite
    p.keys[260 * 64 + 5] = store<bfloat16>(odd);
    p.options.is_causal = true;  // so that some queries do not see it
    check_codes<smoothed_queries>(run_on_device<smoothed_queries, bfloat16>(cuda{}, p).bytes, p);
    check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
  }
}

TEST_CASE("queries are smoothed on a GPU where no log-sum-exps are wanted, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (std::int64_t const channels : {64, 128, 256}) {
    auto const p = make_attention_problem<bfloat16>({2, 2, 1, 150, 300, channels});
    auto const with_lse = run_on_device<smoothed_queries, bfloat16>(exec, p);
    auto const without = run_on_device<smoothed_queries, bfloat16>(exec, p, head_layout::heads_first, false);
    CHECK(without.found.result == with_lse.found.result);
    check_codes<smoothed_queries>(without.bytes, p);
  }
}

TEST_CASE("smoothed queries attend on a GPU over codes that were made before", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  auto const p = make_attention_problem<bfloat16>({2, 4, 2, 150, 300, 64});
  attention_shape const& s = p.shape;
  device_attention<bfloat16> const in(exec, p, head_layout::heads_first);
  auto const plan = smoothed_queries::plan_quantize(exec, s);
  auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
  workspace const space(plan, memory);
  auto const heads = smoothed_queries::operands(s, space);
  attention_inputs<bfloat16> later = in.inputs();
  attention_inputs<bfloat16> before = in.inputs();
  before.queries = {};
  later.keys = later.values = {};
  smoothed_queries::quantize(exec, s, before, {}, heads, space);
  smoothed_queries::quantize(exec, s, later, {}, heads, space);
  auto const found = to_host(exec, memory);
  check_codes<smoothed_queries>(found, p);
  smoothed_queries::regions const layout("test", s);
  auto const of_codes = floats_of(found, layout.corrections);
  auto const of_keys = floats_of(run_on_device<smoothed_queries, bfloat16>(exec, p).bytes, layout.corrections);
  double const apart = farthest(as_doubles(of_codes), as_doubles(of_keys));
  CHECK(apart > 0.0);   // codes are not keys
  CHECK(apart < 0.05);  // but nearly
}
