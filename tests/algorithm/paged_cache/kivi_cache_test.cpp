// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/paged_cache/kivi_cache.hpp>

#include "support/catch.hpp"
#include "support/coded_part.hpp"

using namespace tessera;
using namespace tessera_test;

namespace kivi_cache_test {

using quantizer_type = asymmetric_half_quantizer<2, 32>;
constexpr std::int64_t heads = 2;
constexpr std::int64_t channels = 64;

/// The largest error of each key or value, head x token x channel: 0 beyond the sealed tokens, else what a step of the
/// range of its group makes possible, which is a third of it, a half, and the rounding of fp16.
std::vector<double> largest_errors(layer_pair<bfloat16> const& data, int which, std::int64_t sealed) {
  std::vector<double> const given = as_doubles(data.part[0][which]);
  std::vector<double> errors(given.size());
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t i = 0; i < sealed * channels; ++i) {
      std::int64_t const token = i / channels;
      std::int64_t const channel = i % channels;
      double low = std::numeric_limits<double>::infinity();
      double high = -low;
      for (std::int64_t k = 0; k < 32; ++k) {
        std::int64_t const t = which == key_part ? token / 32 * 32 + k : token;
        std::int64_t const c = which == key_part ? channel : channel / 32 * 32 + k;
        double const value = given[as_size((head * data.tokens + t) * channels + c)];
        low = std::min(low, value);
        high = std::max(high, value);
      }
      double const rounding = 1e-3 * std::max(std::fabs(low), std::fabs(high)) + 1e-6;
      errors[as_size(head * data.tokens * channels + i)] = 0.5 * (high - low + rounding) / 3 * 1.001 + 1e-6;
    }
  }
  return errors;
}

/// Checks what a cache of so many tokens restores and attends to, of which the first `sealed` are in pages.
void check_tokens(coded_part<kivi_cache> const& part, layer_pair<bfloat16> const& data, std::int64_t sealed) {
  CAPTURE(data.tokens, sealed);
  REQUIRE(part.pages[0] == sealed / 64);
  std::vector<double> restored[2];
  std::vector<double> errors[2];
  for (int which : {key_part, value_part}) {
    restored[which] = as_doubles(part.restored(0, which));
    errors[which] = largest_errors(data, which, sealed);
    auto const given = as_doubles(data.part[0][which]);
    auto const expected = as_doubles(coded_by_groups(quantizer_type{}, data, 0, which, sealed));
    REQUIRE(restored[which].size() == given.size());
    int wrong = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
      wrong += std::fabs(restored[which][i] - given[i]) <= errors[which][i] ? 0 : 1;
      wrong += std::fabs(restored[which][i] - expected[i]) <= 1e-5 * std::fabs(expected[i]) + 1e-6 ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
  // Attention is that over what is restored, and no farther from that over the original than the errors of scores and
  // values allow: weights change by factors of at most exp(2 d), where scores change by at most d.
  auto const queries = attention_samples<bfloat16>(testing::gauss{.sigma = 0.1}, 3, 1, 2 * heads * channels);
  auto const found = part.attended(0, queries, 1);
  if (data.tokens == 0) {
    CHECK((found == std::vector<float>(queries.size())));
    return;
  }
  auto const coded = part.attended_by_formula(queries, 1, restored[key_part], restored[value_part]);
  CHECK(error_of(as_doubles(found), coded).relative_l1 < 1e-5);
  auto const exact =
      part.attended_by_formula(queries, 1, as_doubles(data.part[0][key_part]), as_doubles(data.part[0][value_part]));
  for (std::int64_t head = 0; head < 2 * heads; ++head) {
    double of_scores = 0;
    double of_values = 0;
    double largest = 0;
    for (std::int64_t token = 0; token < data.tokens; ++token) {
      double sum = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        std::size_t const at = as_size((head / 2 * data.tokens + token) * channels + c);
        sum += std::fabs(double{load(queries[as_size(head * channels + c)])}) * errors[key_part][at] / 8;
        of_values = std::max(of_values, errors[value_part][at]);
        largest = std::max(largest, std::fabs(double{load(data.part[0][value_part][at])}));
      }
      of_scores = std::max(of_scores, sum);
    }
    double const bound = of_values + (std::exp(2 * of_scores) - 1) * (largest + of_values) + 1e-5;
    for (std::int64_t c = 0; c < channels; ++c) {
      std::size_t const at = as_size(head * channels + c);
      CHECK(std::fabs(double{found[at]} - exact[at]) <= bound);
    }
  }
}

}  // namespace kivi_cache_test

using namespace kivi_cache_test;

TEST_CASE("KIVI restores and attends within its quantizer's error, for any number of tokens", "[host]") {
  for (std::int64_t tokens : {0, 1, 7, 63, 64, 65, 128, 200}) {
    auto const data = make_layer_pair<bfloat16>(1, heads, tokens, channels);
    coded_part<kivi_cache> part(heads, channels);
    part.append(data, 0, tokens);
    check_tokens(part, data, tokens / 64 * 64);
  }
}

TEST_CASE("KIVI keeps a window of the newest tokens as they are", "[host]") {
  for (std::int64_t tokens : {127, 128, 191, 192, 193, 260}) {
    auto const data = make_layer_pair<bfloat16>(1, heads, tokens, channels);
    coded_part<kivi_cache> part(heads, channels, kivi_cache::single(), 128);
    part.append(data, 0, tokens);
    check_tokens(part, data, std::max<std::int64_t>(tokens - 128, 0) / 64 * 64);
  }
}

TEST_CASE("KIVI that decodes token by token has what it has at once", "[host]") {
  auto const data = make_layer_pair<bfloat16>(1, heads, 200, channels);
  coded_part<kivi_cache> part(heads, channels, kivi_cache::single(), 64);
  part.append(data, 0, 100);
  for (std::int64_t token = 100; token < 200; ++token) {
    part.step(data, token);
  }
  check_tokens(part, data, 128);
}

TEST_CASE("KIVI says that a vector is not finite", "[host]") {
  auto data = make_layer_pair<bfloat16>(1, heads, 128, channels);
  data.part[0][key_part][as_size(3 * channels + 1)] = store<bfloat16>(-std::numeric_limits<float>::infinity());
  data.part[0][value_part][as_size(128 * channels + 70 * channels)] =
      store<bfloat16>(std::numeric_limits<float>::quiet_NaN());
  auto const clean = make_layer_pair<bfloat16>(1, heads, 128, channels);
  coded_part<kivi_cache> part(heads, channels);
  part.append(data, 0, 128);
  for (int which : {key_part, value_part}) {
    auto const found = part.restored(0, which);
    std::int64_t const bad = which == key_part ? 3 : 128 + 70;  // head and token
    int wrong = 0;
    for (std::int64_t i = 0; i < heads * 128 * channels; ++i) {
      wrong += std::isnan(found[as_size(i)]) == (i / channels == bad) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
  auto const queries = attention_samples<bfloat16>(testing::gauss{}, 3, 1, 2 * heads * channels);
  for (float result : part.attended(0, queries, 1)) {
    CHECK(std::isnan(result));  // the first head has a key, the second a value
  }
}

TEST_CASE("a page of KIVI has 3 bits for each value, and a header", "[host]") {
  cache_page_format const format{128, 2, 2, 4, 1};
  page_byte_counts const found = kivi_cache::codec_type::counts(format);
  CHECK(found.codes == 2 * 64 * 128 * 2 / 8);
  CHECK(found.scales == 2 * (64 * 128 / 32) * 4);
  CHECK(found.lengths == 0);
  CHECK(found.header == 64);
  CHECK(kivi_cache::codec_type::page_bytes(format) == 6208);
  cpu const exec{.threads = 1};
  kivi_cache const cache(exec, {1, 512, 8, 2, 128}, {.parts = {kivi_cache::single()}});
  CHECK(cache.memory(0).format == format);
  auto const data = make_layer_pair<bfloat16>(1, 2, 192, 128);
  coded_part<kivi_cache> part(2, 128, kivi_cache::single(), 64);
  part.append(data, 0, 192);
  auto const used = part.cache.wait_for_statistics(part.exec, part.sequences());
  CHECK(used.codes + used.scales + used.norms + used.headers == 2 * 2 * 6208);  // pages x heads
  CHECK(used.tail == 64 * 2 * 2 * 128 * 2);
}

TEST_CASE("a fork of KIVI reads what its origin read, which has ended", "[host]") {
  auto const data = make_layer_pair<bfloat16>(1, heads, 150, channels);
  cpu const exec{.threads = 1};
  kivi_cache const cache(exec, {2, 256, 4, heads, channels, 64}, {.parts = {kivi_cache::single()}});
  std::vector<std::int32_t> const blocks{2, 0};
  std::vector<std::int32_t> const lengths{150};
  std::vector<std::int32_t> pages{0};
  auto const plan = cache.plan_append(exec, {1, 150});
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<std::int32_t> slots{0};
  cache_sequences sequences{{blocks.data(), {1, 2}}, slots, lengths, pages, 1};
  cache.append(exec, 0, data.inputs(), sequences, {150, {}}, workspace(plan, memory));
  cache.advance(exec, sequences, pages, 150);
  std::vector<float> results[2];
  for (std::int32_t slot : {0, 1}) {
    std::vector<float> keys(heads * 150 * channels);
    std::vector<float> values(keys.size());
    slots[0] = slot;
    cache.restore(exec, 0, sequences, head_view<float>(keys.data(), {1, heads, 150, channels}),
                  head_view<float>(values.data(), {1, heads, 150, channels}));
    results[slot] = keys;
    std::vector<std::int32_t> const from{0};
    std::vector<std::int32_t> const to{1};
    cache.fork(exec, from, to);
    cache.reset(exec, from);
  }
  exec.wait();
  CHECK((results[0] == results[1]));
}
