// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/middle_reference.hpp"
#include "support/quantized_reference.hpp"
#include "support/sampled_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// A channel of a head.
template <class T>
std::vector<float> channel_of(std::vector<T> const& all, attention_shape const& s, std::int64_t head,
                              std::int64_t channel, std::int64_t length) {
  std::vector<float> found;
  for (std::int64_t token = 0; token < length; ++token) {
    found.push_back(static_cast<float>(load(all[as_size((head * s.keys + token) * s.channels + channel)])));
  }
  return found;
}

std::vector<float> sample_of(std::vector<float> const& values) {
  auto const length = static_cast<std::int64_t>(values.size());
  std::int64_t const step = sampled_mean::sample.step(length);
  std::vector<float> found;
  for (std::int64_t i = 0; i < sampled_mean::sample.count(length); ++i) {
    found.push_back(values[as_size(token_sample::token(i, step))]);
  }
  return found;
}

/// The largest magnitude, or NaN if not all are numbers.
float largest_of(std::vector<float> const& values, float mean) {
  float found = 0;
  for (float const value : values) {
    found = std::isfinite(value) && !std::isnan(found) ? std::max(found, std::fabs(value - mean)) : NAN;
  }
  return found;
}

/// The documented rule, written out another way.
float scale_by_rule(std::vector<float> const& values, float mean) {
  float const all = largest_of(values, mean);
  float const largest = largest_of(sample_of(values), mean);
  float const sampled = 4.0F * largest / 448.0F;
  bool const is_whole = values.size() < 1024;
  bool const fits = !is_whole && std::isfinite(all) && largest > 0 && all * (1.0F / sampled) < 432.0F;
  return fits ? sampled : all / 448.0F;
}

/// How many means, scales and codes of values are not as the rule says.
template <class Attention, class T>
int wrong_values(attention_problem<T> const& p, made_operands<Attention> const& made) {
  attention_shape const& s = p.shape;
  auto const& values = made.heads.values;
  int wrong = 0;
  for (std::int64_t head = 0; head < s.batch * s.key_heads; ++head) {
    std::int64_t const b = head / s.key_heads;
    std::int64_t const h = head % s.key_heads;
    std::int64_t const length = p.key_lengths.empty() ? s.keys : p.key_lengths[as_size(b)];
    for (std::int64_t c = 0; c < s.channels; ++c) {
      auto const channel = channel_of(p.values, s, head, c, length);
      float const mean = values.mean.data == nullptr ? 0.0F : values.mean(b, h, c);
      float const scale = values.scales(b, h, c);
      float const expected = scale_by_rule(channel, mean);
      wrong += scale == expected || (std::isnan(scale) && std::isnan(expected)) ? 0 : 1;
      for (std::int64_t token = 0; token < padded_tokens(s.keys); ++token) {
        bool const is_coded = token < length && scale > 0;
        float const steps = is_coded ? (channel[as_size(token)] - mean) * (1.0F / scale) : 0.0F;
        float8_e4m3 const code = is_coded ? store<float8_e4m3>(std::clamp(steps, -448.0F, 448.0F)) : float8_e4m3{0};
        wrong += values.code(b, h, token, c) == code ? 0 : 1;
      }
    }
  }
  return wrong;
}

/// How many means of keys are not means of middles of their samples.
template <class T>
int wrong_key_means(attention_problem<T> const& p, view<float, 3> means) {
  attention_shape const& s = p.shape;
  int wrong = 0;
  for (std::int64_t head = 0; head < s.batch * s.key_heads; ++head) {
    std::int64_t const b = head / s.key_heads;
    std::int64_t const length = p.key_lengths.empty() ? s.keys : p.key_lengths[as_size(b)];
    for (std::int64_t c = 0; c < s.channels; ++c) {
      float const expected = mean_of_middles(sample_of(channel_of(p.keys, s, head, c, length)));
      wrong += means(b, head % s.key_heads, c) == expected ? 0 : 1;
    }
  }
  return wrong;
}

/// The largest distance of means from the means of their samples' finite values.
template <class T>
double worst_mean(std::vector<T> const& all, attention_problem<T> const& p, view<float, 3> means) {
  attention_shape const& s = p.shape;
  double worst = 0;
  for (std::int64_t head = 0; head < s.batch * s.key_heads; ++head) {
    std::int64_t const b = head / s.key_heads;
    std::int64_t const length = p.key_lengths.empty() ? s.keys : p.key_lengths[as_size(b)];
    for (std::int64_t c = 0; c < s.channels; ++c) {
      auto const sample = sample_of(channel_of(all, s, head, c, length));
      double sum = 0;
      for (float const value : sample) {
        sum += std::isfinite(value) ? static_cast<double>(value) : 0.0;
      }
      double const mean = sum / std::max(static_cast<double>(sample.size()), 1.0);
      worst = std::max(worst, std::fabs(mean - static_cast<double>(means(b, head % s.key_heads, c))));
    }
  }
  return worst;
}

template <class T>
bool same_bytes(view<T, 4> a, view<T, 4> b) {
  return a.size() == b.size() && std::memcmp(a.data, b.data, as_size(a.size()) * sizeof(T)) == 0;
}

}  // namespace

TEST_CASE("means and scales are those of the sample, whatever the length", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 7, 127, 128, 129, 1000, 1023, 1024, 1025, 2500, 4096, 8200}) {
    CAPTURE(tokens);
    auto const p = make_attention_problem<bfloat16>({1, 2, 2, 3, tokens, 16});
    auto const made = make_operands<sage_attention2>(exec, p);
    CHECK(wrong_key_means(p, made.heads.keys.mean) == 0);
    CHECK(wrong_values(p, made) == 0);
    auto const smooth = make_operands<sampled_all>(exec, p);
    CHECK(worst_mean(p.values, p, smooth.heads.values.mean) < 1e-5);
    CHECK(wrong_values(p, smooth) == 0);
    CHECK(same_bytes(made.heads.keys.codes, smooth.heads.keys.codes));
  }
}

TEST_CASE("sequences that are taken whole have the codes of all tokens", "[host][threads]") {
  cpu const exec{.threads = 2};
  using exact = attention<whole_keys, whole_values>;
  auto p = make_attention_problem<bfloat16>({2, 2, 1, 3, 1023, 16});
  p.key_lengths = {1023, 600};
  auto const made = make_operands<sage_attention2>(exec, p);
  auto const expected = make_operands<exact>(exec, p);
  CHECK(same_bytes(made.heads.keys.codes, expected.heads.keys.codes));
  CHECK(std::memcmp(made.heads.values.codes.data, expected.heads.values.codes.data,
                    as_size(made.heads.values.codes.size())) == 0);
}

TEST_CASE("what the sample did not see is coded by a scale for all, and no other channel changes", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1024, 2500, 8200}) {
    CAPTURE(tokens);
    auto p = make_attention_problem<bfloat16>({1, 2, 2, 3, tokens, 16});
    auto const clean = make_operands<sage_attention2>(exec, p);
    add_values_beyond(p);
    auto const made = make_operands<sage_attention2>(exec, p);
    auto const& scales = made.heads.values.scales;
    CHECK(scales(0, 0, 1) == 3008.0F / 448.0F);  // -3000 in bfloat16
    CHECK(std::isnan(scales(0, 0, 3)));
    CHECK(std::isnan(scales(0, 0, 4)));
    CHECK(scales(0, 0, 5) == load(store<bfloat16>(1e-3F)) / 448.0F);
    CHECK(scales(0, 0, 6) == 4000.0F / 448.0F);
    CHECK(scales(0, 0, 7) == 0.0F);
    CHECK(scales(0, 0, 8) == 4000.0F / 448.0F);
    CHECK(std::isnan(scales(0, 0, 9)));
    CHECK(std::isnan(scales(0, 0, 10)));
    CHECK(wrong_values(p, made) == 0);
    int changed = 0;
    for (std::int64_t c = 11; c < 16; ++c) {
      changed += scales(0, 0, c) == clean.heads.values.scales(0, 0, c) ? 0 : 1;
      for (std::int64_t token = 0; token < tokens; ++token) {
        changed += made.heads.values.code(0, 0, token, c) == clean.heads.values.code(0, 0, token, c) ? 0 : 1;
      }
    }
    CHECK(changed == 0);
    CHECK(wrong_values(p, make_operands<sampled_all>(exec, p)) == 0);
  }
}

TEST_CASE("a value is beyond the range from half way to the largest code on", "[host]") {
  cpu const exec{.threads = 1};
  auto p = make_attention_problem<float>({1, 1, 1, 1, 1200, 16});
  for (std::int64_t token = 0; token < 1200; ++token) {
    p.values[as_size(token * 16)] = 1.0F;  // the sample's largest: the largest code stands for 4
  }
  float const limit = 432.0F * (4.0F / 448.0F);
  std::int64_t const outside = token_of_sample(1200, 700, false);
  p.values[as_size(outside * 16)] = limit * 0.9999F;
  CHECK(make_operands<sage_attention2>(exec, p).heads.values.scales(0, 0, 0) == 4.0F / 448.0F);
  p.values[as_size(outside * 16)] = -limit * 1.0001F;
  CHECK(make_operands<sage_attention2>(exec, p).heads.values.scales(0, 0, 0) == limit * 1.0001F / 448.0F);
}

TEST_CASE("samples are of a sequence's own tokens, and every executor takes the same", "[host][threads]") {
  auto p = make_attention_problem<bfloat16>({10, 1, 1, 2, 2500, 16});
  p.key_lengths = {2500, 0, 1, 7, 127, 128, 129, 1000, 1024, 2049};
  auto const made = make_operands<sage_attention2>(cpu{.threads = 2}, p);
  CHECK(wrong_values(p, made) == 0);
  CHECK(wrong_key_means(p, made.heads.keys.mean) == 0);
  auto const smooth = make_operands<sampled_all>(cpu{.threads = 1}, p);
  CHECK(wrong_values(p, smooth) == 0);
  auto const shuffled = make_operands<sampled_all>(testing::adversary{.seed = 4}, p);
  CHECK(same_bytes(smooth.heads.keys.codes, shuffled.heads.keys.codes));
  CHECK(std::memcmp(smooth.heads.values.codes.data, shuffled.heads.values.codes.data,
                    as_size(smooth.heads.values.codes.size())) == 0);
  attention_problem<bfloat16> alone{{1, 1, 1, 2, 2049, 16}, {}, {}, {}};
  alone.queries.assign(p.queries.end() - 2 * 16, p.queries.end());
  alone.keys.assign(p.keys.begin() + 9 * 2500 * 16, p.keys.begin() + (9 * 2500 + 2049) * 16);
  alone.values.assign(p.values.begin() + 9 * 2500 * 16, p.values.begin() + (9 * 2500 + 2049) * 16);
  auto const expected = make_operands<sage_attention2>(cpu{.threads = 2}, alone);
  CHECK(std::memcmp(&made.heads.keys.codes(9, 0, 0, 0), expected.heads.keys.codes.data,
                    as_size(expected.heads.keys.codes.size())) == 0);
  CHECK(std::memcmp(&made.heads.values.codes(9, 0, 0, 0, 0), expected.heads.values.codes.data,
                    as_size(expected.heads.values.codes.size())) == 0);
}

TEST_CASE("a sample costs no accuracy", "[host][threads]") {
  cpu const exec{.threads = 2};
  using exact = attention<whole_keys, whole_values>;
  auto const p = make_attention_problem<bfloat16>({1, 1, 1, 64, 4096, 64}, testing::offset_channels{64, 0.06, 2.0},
                                                  testing::offset_channels{64, 0.06, 4.0},
                                                  testing::offset_channels{64, 1.0, 0.5}, 5);
  auto const expected = attention_by_formula(p);
  auto const error = [&](attention_results const& found) {
    return error_of(found.result, expected.result).relative_l1;
  };
  double const of_all = error(run_attention_problem<exact, float>(exec, p));
  auto const found = run_attention_problem<sage_attention2, float>(exec, p);
  double const of_sample = error(found);
  double const smooth = error(run_attention_problem<sampled_all, float>(exec, p));
  CAPTURE(of_all, of_sample, smooth);
  CHECK(of_sample < 1.02 * of_all);
  CHECK(smooth < 1.02 * of_all);
  CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 0.01);
}
