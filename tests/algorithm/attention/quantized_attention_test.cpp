// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include <tessera/exec/buffer.hpp>
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

template <class T, int Rank>
std::vector<T> list_of(view<T, Rank> values) {
  return values.size() == 0 ? std::vector<T>{} : std::vector<T>(values.data, values.data + values.size());
}

/// One head of `tokens` x `channels`, as floats.
struct plain_head {
  std::int64_t tokens;
  std::int64_t channels;
  std::vector<float> values;
  float at(std::int64_t token, std::int64_t channel) const { return values[as_size(token * channels + channel)]; }
};

template <class T>
plain_head head_of(std::vector<T> const& all, std::int64_t head, std::int64_t tokens, std::int64_t channels) {
  plain_head made{tokens, channels, {}};
  for (std::int64_t i = 0; i < tokens * channels; ++i) {
    made.values.push_back(static_cast<float>(load(all[as_size(head * tokens * channels + i)])));
  }
  return made;
}

int rounded(float steps, int most) {
  return std::isnan(steps) ? 0
                           : static_cast<int>(std::fmin(std::fmax(std::nearbyint(steps), -static_cast<float>(most)),
                                                        static_cast<float>(most)));
}

/// How many codes and scales of a head are not as the format says; `group` names the group of a token.
int wrong_tokens(plain_head const& head, std::vector<float> const& mean,
                 std::function<std::int64_t(std::int64_t)> group, int most, float factor, std::int8_t const* codes,
                 std::vector<float> const& scales, std::int64_t padded) {
  std::map<std::int64_t, float> largest;
  for (std::int64_t token = 0; token < padded; ++token) {
    float& of_group = largest[group(token)];
    for (std::int64_t c = 0; token < head.tokens && c < head.channels; ++c) {
      of_group = std::max(of_group, std::fabs(head.at(token, c) - mean[as_size(c)]));
    }
  }
  int wrong = scales.size() == largest.size() ? 0 : 1000000;
  for (auto const& [name, size] : largest) {
    wrong += scales[as_size(name)] == size / static_cast<float>(most) * factor ? 0 : 1;
  }
  for (std::int64_t token = 0; token < padded; ++token) {
    for (std::int64_t c = 0; c < head.channels; ++c) {
      float const scale = largest[group(token)] / static_cast<float>(most);
      int const expected =
          token < head.tokens ? rounded((head.at(token, c) - mean[as_size(c)]) * (1.0F / scale), most) : 0;
      wrong += codes[token * head.channels + c] == expected ? 0 : 1;
    }
  }
  return wrong;
}

int wrong_values(plain_head const& head, float8_e4m3 const* codes, float const* scales, std::int64_t padded) {
  int wrong = 0;
  for (std::int64_t c = 0; c < head.channels; ++c) {
    float largest = 0;
    for (std::int64_t token = 0; token < head.tokens; ++token) {
      largest = std::max(largest, std::fabs(head.at(token, c)));
    }
    wrong += scales[c] == largest / 448.0F ? 0 : 1;
    for (std::int64_t token = 0; token < padded; ++token) {
      std::int64_t const s = token % 16;
      std::int64_t const position = token % 128 - s + (s / 8) * 2 + ((s / 2) % 4) * 4 + s % 2;
      float8_e4m3 const expected =
          token < head.tokens ? store<float8_e4m3>(head.at(token, c) * (1.0F / (largest / 448.0F))) : float8_e4m3{0};
      wrong += codes[(token / 128 * head.channels + c) * 128 + position] == expected ? 0 : 1;
    }
  }
  return wrong;
}

template <class T>
void check_format(attention_shape const& s) {
  CAPTURE(s.queries, s.keys, s.channels);
  cpu const exec{.threads = 2};
  auto const p = make_attention_problem<T>(s);
  auto const made = make_operands<sage_attention2>(exec, p);
  std::int64_t const queries = padded_tokens(s.queries);
  std::int64_t const keys = padded_tokens(s.keys);
  float const factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.channels))) * 1.4426950408889634F;
  auto const q_scales = list_of(made.heads.queries.scales);
  auto const k_scales = list_of(made.heads.keys.scales);
  auto const means = list_of(made.heads.keys.mean);
  REQUIRE(made.heads.queries.scales.extent(2) == queries / 64 * 32);
  REQUIRE(made.heads.keys.scales.extent(2) == keys / 128 * 4);
  int wrong = 0;
  for (std::int64_t head = 0; head < s.batch * s.query_heads; ++head) {
    std::vector<float> const of_head(q_scales.begin() + head * (queries / 2),
                                     q_scales.begin() + (head + 1) * queries / 2);
    wrong += wrong_tokens(
        head_of(p.queries, head, s.queries, s.channels), std::vector<float>(as_size(s.channels)),
        [](std::int64_t n) { return (n / 16) * 8 + n % 8; }, 127, factor,
        made.heads.queries.codes.data + head * queries * s.channels, of_head, queries);
  }
  for (std::int64_t head = 0; head < s.batch * s.key_heads; ++head) {
    std::vector<float> const of_head(k_scales.begin() + head * (keys / 32), k_scales.begin() + (head + 1) * keys / 32);
    std::vector<float> const mean(means.begin() + head * s.channels, means.begin() + (head + 1) * s.channels);
    wrong += wrong_tokens(
        head_of(p.keys, head, s.keys, s.channels), mean, [](std::int64_t n) { return (n / 128) * 4 + (n % 8) / 2; },
        127, 1.0F, made.heads.keys.codes.data + head * keys * s.channels, of_head, keys);
    wrong += wrong_values(head_of(p.values, head, s.keys, s.channels),
                          made.heads.values.codes.data + head * keys * s.channels,
                          made.heads.values.scales.data + head * s.channels, keys);
  }
  CHECK(wrong == 0);
}

using eight = symmetric_quantizer<8, per_thread>;
using fp8 = float8_quantizer<float8_e4m3>;

}  // namespace

TEST_CASE("codes and scales are those of the format, bit for bit, whatever the extents", "[host][threads]") {
  for (std::int64_t const tokens : {1, 7, 63, 64, 65, 127, 128, 129, 300}) {
    check_format<bfloat16>({1, 2, 1, tokens, 130, 32});
    check_format<bfloat16>({1, 1, 1, 3, tokens, 16});
  }
  for (std::int64_t const channels : {16, 48, 64, 80, 128, 192, 256}) {
    check_format<float16>({2, 4, 2, 40, 70, channels});
  }
  check_format<float>({1, 2, 2, 33, 140, 64});
}

TEST_CASE("nothing is quantized where there are no tokens or no sequences", "[host]") {
  cpu const exec{.threads = 1};
  for (attention_shape const& s :
       {attention_shape{1, 2, 1, 0, 9, 32}, attention_shape{1, 2, 1, 9, 0, 32}, attention_shape{0, 2, 1, 9, 9, 32}}) {
    auto const made = make_operands<sage_attention2_int4>(exec, make_attention_problem<bfloat16>(s));
    CHECK(made.heads.queries.codes.size() == s.batch * 2 * padded_tokens(s.queries) * 16);
    CHECK(made.heads.keys.codes.size() == s.batch * padded_tokens(s.keys) * 16);
  }
}

TEST_CASE("every granularity and width makes codes that decode to its tokens", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto const p = make_attention_problem<bfloat16>({1, 1, 1, 150, 150, 32});
  auto const check = [&](auto const& quantizer) {
    using q = std::remove_cvref_t<decltype(quantizer)>;
    using method = attention<q, fp8>;
    auto const made = make_operands<method>(exec, p);
    auto const& keys = made.heads.keys;
    int wrong = 0;
    for (std::int64_t token = 0; token < 150; ++token) {
      float const scale = keys.scales(0, 0, method::method::key_groups::group_of(token));
      for (std::int64_t c = 0; c < 32; ++c) {
        int const code = keys.code(0, 0, token, c);
        float const near = static_cast<float>(code) * scale;
        float const value = load(p.keys[as_size(token * 32 + c)]);
        wrong += std::fabs(near - value) <= scale * 0.5001F && std::abs(code) <= q::highest ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
    CHECK(keys.scales.extent(2) == method::method::key_groups::count(256));
  };
  check(symmetric_quantizer<8, per_tensor>{});
  check(symmetric_quantizer<8, per_block>{});
  check(symmetric_quantizer<8, per_warp>{});
  check(symmetric_quantizer<8, per_token>{});
  check(symmetric_quantizer<4, per_tensor>{});
  check(symmetric_quantizer<4, per_block>{});
  check(symmetric_quantizer<4, per_thread>{});
  check(symmetric_quantizer<4, per_token>{});
  check(two_to_a_byte<symmetric_quantizer<4, per_tensor>>{});
  check(two_to_a_byte<symmetric_quantizer<4, per_token>>{});
}

TEST_CASE("the programs keep the rules for programs, and every executor makes the same bits", "[host][threads]") {
  auto const p = make_attention_problem<bfloat16>({1, 2, 1, 70, 140, 32});
  auto const one = make_operands<sage_attention2_int4>(cpu{.threads = 1}, p);
  auto const two = make_operands<sage_attention2_int4>(cpu{.threads = 2}, p);
  auto const other = make_operands<sage_attention2_int4>(testing::adversary{.seed = 11}, p);
  for (auto const* same : {&two, &other}) {
    CHECK(list_of(one.heads.queries.codes) == list_of(same->heads.queries.codes));
    CHECK(list_of(one.heads.queries.scales) == list_of(same->heads.queries.scales));
    CHECK(list_of(one.heads.queries.corrections) == list_of(same->heads.queries.corrections));
    CHECK(list_of(one.heads.queries.mean_scores) == list_of(same->heads.queries.mean_scores));
    CHECK(list_of(one.heads.keys.codes) == list_of(same->heads.keys.codes));
    CHECK(list_of(one.heads.keys.mean) == list_of(same->heads.keys.mean));
    CHECK(list_of(one.heads.values.codes) == list_of(same->heads.values.codes));
  }
  using whole = attention<smoothed<symmetric_quantizer<8, per_tensor>>, smoothed<fp8>>;
  auto const plain = make_operands<whole>(cpu{.threads = 1}, p);
  auto const shuffled = make_operands<whole>(testing::adversary{.seed = 12}, p);
  CHECK(list_of(plain.heads.keys.codes) == list_of(shuffled.heads.keys.codes));
  CHECK(list_of(plain.heads.keys.scales) == list_of(shuffled.heads.keys.scales));
  CHECK(list_of(plain.heads.values.codes) == list_of(shuffled.heads.values.codes));
  CHECK(list_of(plain.heads.values.mean) == list_of(shuffled.heads.values.mean));
}

TEST_CASE("strides of the inputs change nothing", "[host]") {
  cpu const exec{.threads = 1};
  auto const p = make_attention_problem<bfloat16>({2, 2, 2, 70, 70, 32});
  auto const expected = make_operands<sage_attention2>(exec, p);
  // Tokens before heads, three tensors in one, and two unused elements behind each.
  std::vector<bfloat16> packed(2 * 70 * 3 * 2 * 34, bfloat16{0x7fc0});
  auto const part = [&](std::int64_t which) {
    return head_view<bfloat16>(packed.data() + which * 2 * 34, {2, 2, 70, 32}, {70 * 6 * 34, 34, 6 * 34, 1});
  };
  std::vector<bfloat16> const* sources[3] = {&p.queries, &p.keys, &p.values};
  for (std::int64_t which = 0; which < 3; ++which) {
    for (std::int64_t i = 0; i < 2 * 2 * 70 * 32; ++i) {
      part(which)(i / (2 * 70 * 32), i / (70 * 32) % 2, i / 32 % 70, i % 32) = (*sources[which])[as_size(i)];
    }
  }
  auto const plan = sage_attention2::plan_quantize(exec, p.shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto const heads = sage_attention2::operands(p.shape, space);
  attention_inputs<bfloat16> const in{part(0), part(1), part(2)};
  sage_attention2::quantize(exec, p.shape, in, {}, heads, space);
  CHECK(list_of(heads.queries.codes) == list_of(expected.heads.queries.codes));
  CHECK(list_of(heads.keys.codes) == list_of(expected.heads.keys.codes));
  CHECK(list_of(heads.values.codes) == list_of(expected.heads.values.codes));
}

TEST_CASE("an infinity or a NaN poisons the scale of its own group or channel and no other code", "[host]") {
  cpu const exec{.threads = 1};
  auto p = make_attention_problem<bfloat16>({1, 1, 1, 64, 256, 32});
  p.keys[as_size(200 * 32 + 5)] = store<bfloat16>(0.0F);
  auto const clean = make_operands<sage_attention2>(exec, p);
  p.queries[as_size(21 * 32 + 3)] = store<bfloat16>(NAN);
  p.keys[as_size(200 * 32 + 5)] = store<bfloat16>(-INFINITY);
  p.values[as_size(30 * 32 + 9)] = store<bfloat16>(NAN);
  auto const found = make_operands<sage_attention2>(exec, p);
  for (std::int64_t group = 0; group < 32; ++group) {
    CHECK(std::isnan(found.heads.queries.scales(0, 0, group)) == (group == 13));
  }
  for (std::int64_t group = 0; group < 8; ++group) {
    CHECK(std::isnan(found.heads.keys.scales(0, 0, group)) == (group == 4));
  }
  for (std::int64_t channel = 0; channel < 32; ++channel) {
    CHECK(std::isnan(found.heads.values.scales(0, 0, channel)) == (channel == 9));
  }
  CHECK(list_of(found.heads.keys.mean) == list_of(clean.heads.keys.mean));
  int wrong = 0;
  for (std::int64_t token = 0; token < 256; ++token) {
    for (std::int64_t c = 0; c < 32; ++c) {
      bool const is_poisoned = token >= 128 && token % 8 < 2;
      std::int8_t const expected = is_poisoned ? std::int8_t{0} : clean.heads.keys.codes(0, 0, token, c);
      wrong += found.heads.keys.codes(0, 0, token, c) == expected ? 0 : 1;
      float8_e4m3 const value = c == 9 ? float8_e4m3{0} : clean.heads.values.code(0, 0, token, c);
      wrong += found.heads.values.code(0, 0, token, c) == value ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("zeros, constants and the largest and smallest numbers have codes", "[host]") {
  cpu const exec{.threads = 1};
  auto p = make_attention_problem<float>({1, 1, 1, 16, 16, 16});
  for (float const size : {0.0F, -0.0F, 1e-44F, 1e-38F, 3e38F}) {
    CAPTURE(size);
    p.queries.assign(p.queries.size(), size);
    p.keys.assign(p.keys.size(), size);
    p.values.assign(p.values.size(), size);
    using plain = attention<eight, fp8>;
    auto const made = make_operands<plain>(exec, p);
    bool const is_zero = size == 0.0F;
    CHECK((made.heads.keys.scales(0, 0, 0) == 0.0F) == is_zero);
    CHECK((made.heads.values.scales(0, 0, 0) == 0.0F) == is_zero);
    CHECK(std::isfinite(made.heads.queries.scales(0, 0, 0)));
    if (size == 0.0F || size > 1e-30F) {
      CHECK(made.heads.keys.codes(0, 0, 3, 3) == (is_zero ? 0 : 127));
      CHECK(made.heads.values.code(0, 0, 3, 3).bits == (is_zero ? 0 : 0x7e));
    }
  }
}

namespace {

/// The largest distance of scores of mean queries from the formula's; scores of padding are zeros. Means are
/// rounded to bf16.
template <class Attention>
double farthest_correction(attention_problem<bfloat16> const& p, made_operands<Attention> const& made) {
  attention_shape const& s = p.shape;
  auto const q = as_doubles(p.queries);
  auto const k = as_doubles(p.keys);
  auto const scale = static_cast<double>(p.options.softmax_scale) / std::log(2.0);
  auto const& found = made.heads.queries.corrections;
  double worst = 0;
  for (std::int64_t i = 0; i < found.size() / found.extent(3); ++i) {
    std::int64_t const block = i % found.extent(2);
    std::int64_t const head = i / found.extent(2) % s.query_heads;
    std::int64_t const sequence = i / found.extent(2) / s.query_heads;
    std::int64_t const key_head = head / (s.query_heads / s.key_heads);
    std::int64_t const count = std::min(s.queries - block * block_mean::tokens, std::int64_t{block_mean::tokens});
    std::vector<double> mean(as_size(s.channels));
    for (std::int64_t j = 0; j < count * s.channels; ++j) {
      std::int64_t const row =
          (sequence * s.query_heads + head) * s.queries + block * block_mean::tokens + j / s.channels;
      mean[as_size(j % s.channels)] += q[as_size(row * s.channels + j % s.channels)] / static_cast<double>(count);
    }
    for (double& of_channel : mean) {
      of_channel = static_cast<double>(load(store<bfloat16>(static_cast<float>(of_channel))));
    }
    for (std::int64_t key = 0; key < found.extent(3); ++key) {
      double score = 0;
      for (std::int64_t c = 0; key < s.keys && c < s.channels; ++c) {
        auto const of_keys = static_cast<double>(made.heads.keys.mean(sequence, key_head, c));
        std::int64_t const row = (sequence * s.key_heads + key_head) * s.keys + key;
        score += scale * mean[as_size(c)] * (k[as_size(row * s.channels + c)] - of_keys);
      }
      worst = std::max(
          worst, std::fabs(score - static_cast<double>(made.heads.queries.correction(sequence, head, block, key))));
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("scores that smoothing takes away are kept in fp32", "[host]") {
  cpu const exec{.threads = 1};
  auto p = make_attention_problem<bfloat16>({2, 4, 2, 70, 140, 32});
  p.options.softmax_scale = 0.3F;
  auto const made = make_operands<sage_attention2_int4>(exec, p);
  auto const q = as_doubles(p.queries);
  double worst = 0;
  for (std::int64_t head = 0; head < 8; ++head) {
    std::int64_t const key_head = head / 4 * 2 + head % 4 / 2;
    auto const mean = [&](std::int64_t c) {
      return static_cast<double>(made.heads.keys.mean(key_head / 2, key_head % 2, c));
    };
    for (std::int64_t query = 0; query < 70; ++query) {
      double score = 0;
      for (std::int64_t c = 0; c < 32; ++c) {
        score += 0.3 * q[as_size((head * 70 + query) * 32 + c)] * mean(c);
      }
      worst = std::max(
          worst, std::fabs(score - static_cast<double>(made.heads.queries.mean_scores(head / 4, head % 4, query))));
    }
  }
  CHECK(worst < 1e-5);
  CHECK(farthest_correction(p, made) < 1e-5);
}

TEST_CASE("scores of mean queries are right where they are many, and of several heads", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (attention_shape const& s : {attention_shape{2, 4, 2, 2300, 130, 16}, attention_shape{1, 3, 1, 65, 257, 48},
                                   attention_shape{1, 2, 2, 513, 3, 16}}) {
    CAPTURE(s.queries, s.keys);
    auto p = make_attention_problem<bfloat16>(s);
    p.options.softmax_scale = 0.3F;
    CHECK(farthest_correction(p, make_operands<sage_attention2_int4>(exec, p)) < 1e-5);
  }
}

TEST_CASE("sequences of a padded batch are quantized as if they were alone", "[host]") {
  cpu const exec{.threads = 1};
  auto p = make_attention_problem<bfloat16>({2, 1, 1, 100, 150, 32});
  p.query_lengths = {100, 33};
  p.key_lengths = {150, 70};
  auto const made = make_operands<sage_attention2>(exec, p);
  attention_problem<bfloat16> alone{{1, 1, 1, 33, 70, 32}, {}, {}, {}};
  alone.queries.assign(p.queries.begin() + 100 * 32, p.queries.begin() + 133 * 32);
  alone.keys.assign(p.keys.begin() + 150 * 32, p.keys.begin() + 220 * 32);
  alone.values.assign(p.values.begin() + 150 * 32, p.values.begin() + 220 * 32);
  auto const expected = make_operands<sage_attention2>(exec, alone);
  int wrong = 0;
  for (std::int64_t token = 0; token < 256; ++token) {
    for (std::int64_t c = 0; c < 32; ++c) {
      std::int8_t const query = token < 128 ? expected.heads.queries.codes(0, 0, token, c) : std::int8_t{0};
      std::int8_t const key = token < 128 ? expected.heads.keys.codes(0, 0, token, c) : std::int8_t{0};
      float8_e4m3 const value = token < 128 ? expected.heads.values.code(0, 0, token, c) : float8_e4m3{0};
      wrong += token >= 128 || made.heads.queries.codes(1, 0, token, c) == query ? 0 : 1;
      wrong += made.heads.keys.codes(1, 0, token, c) == key ? 0 : 1;
      wrong += made.heads.values.code(1, 0, token, c) == value ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  CHECK(list_of(made.heads.keys.mean[1]) == list_of(expected.heads.keys.mean[0]));
}
