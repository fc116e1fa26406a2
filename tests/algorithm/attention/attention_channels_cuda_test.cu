// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/take_call.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

attention_options causal() {
  attention_options options;
  options.is_causal = true;
  return options;
}

/// Checks against the portable program on the host. Sums of weights that are rounded to e4m3 differ by a rounding at
/// most.
void check_on_device(attention_problem<bfloat16> const& p, head_layout layout = head_layout::heads_first) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, static_cast<int>(layout));
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right);
  tessera::cuda const exec;
  auto const found = run_on_device<sage_attention2, bfloat16>(exec, p, layout);
  auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
  bool const is_few = s.queries <= few_queries;
  bool const is_zero = std::all_of(expected.result.begin(), expected.result.end(), [](double x) { return x == 0; });
  CHECK(found.is_clean);
  CHECK((is_zero ? found.found.result == expected.result
                 : error_of(found.found.result, expected.result).relative_l1 < (is_few ? 2e-3 : 4e-3)));
  CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < (is_few ? 1e-3 : 0.0607));  // log(17 / 16)
}

void check_shape(attention_shape const& s, attention_options const& options = {},
                 head_layout layout = head_layout::heads_first) {
  auto p = make_attention_problem<bfloat16>(s);
  p.options = options;
  check_on_device(p, layout);
}

/// The same rows with zeros behind their channels.
std::vector<bfloat16> with_zeros(std::vector<bfloat16> const& rows, std::int64_t channels, std::int64_t more) {
  auto const count = static_cast<std::int64_t>(rows.size()) / channels;
  std::vector<bfloat16> padded(as_size(count * more), store<bfloat16>(0.0F));
  for (std::int64_t row = 0; row < count; ++row) {
    auto const from = rows.begin() + row * channels;
    std::copy(from, from + channels, padded.begin() + row * more);
  }
  return padded;
}

/// The same problem with more channels, which change nothing.
attention_problem<bfloat16> widened(attention_problem<bfloat16> const& p, std::int64_t channels) {
  auto wide = p;
  wide.shape.channels = channels;
  wide.queries = with_zeros(p.queries, p.shape.channels, channels);
  wide.keys = with_zeros(p.keys, p.shape.channels, channels);
  wide.values = with_zeros(p.values, p.shape.channels, channels);
  return wide;
}

}  // namespace

TEST_CASE("attention on a GPU takes any number of channels and tokens", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 32, 48, 80, 96, 112, 144, 192, 240, 256}) {
    check_shape({1, 2, 1, 130, 200, channels}, causal());
    check_shape({2, 2, 2, 257, 129, channels});
    check_shape({1, 4, 2, 100, 7, channels}, causal());
  }
  for (std::int64_t const tokens : {17, 127, 128, 129, 191, 193, 1000}) {
    check_shape({1, 2, 2, tokens, tokens, 256});
    check_shape({1, 2, 1, tokens, tokens, 256}, causal());
  }
}

TEST_CASE("a few queries on a GPU take any number of channels", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 32, 48, 80, 96, 112, 144, 192, 240, 256}) {
    check_shape({2, 4, 2, 1, 129, channels});
    check_shape({1, 6, 2, 5, 2500, channels}, causal());
    check_shape({2, 2, 1, 16, 600, channels}, causal(), head_layout::tokens_first);
    auto p = make_attention_problem<bfloat16>({3, 4, 2, 2, 700, channels});
    p.key_lengths = {700, 0, 130};
    p.sinks = {3.0F, -1.0F, 0.0F, 9.0F};
    check_on_device(p);
  }
}

TEST_CASE("with any number of channels nothing is written between heads", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {48, 80, 96, 176, 256}) {
    check_shape({2, 4, 2, 193, 300, channels}, causal(), head_layout::tokens_first);
    check_shape({2, 1, 1, 140, 150, channels}, {}, head_layout::tokens_first);  // 8 elements between rows
    check_shape({1, 3, 3, 70, 129, channels}, {}, head_layout::shifted);
  }
}

TEST_CASE("channels that are missing are as zeros, to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const channels : {32, 80, 112, 144, 192}) {
    for (attention_shape const& s :
         {attention_shape{2, 12, 4, 1111, 1333, channels}, attention_shape{2, 12, 4, 3, 1333, channels}}) {
      for (bool const is_causal : {false, true}) {
        CAPTURE(channels, s.queries, is_causal);
        auto p = make_attention_problem<bfloat16>(s);
        p.options.is_causal = is_causal;
        p.options.softmax_scale = 0.1F;
        std::int64_t const whole = channels < 64 ? 64 : channels < 128 ? 128 : 256;
        auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
        auto const expected = run_on_device<sage_attention2, bfloat16>(exec, widened(p, whole)).found;
        CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 1e-5);  // mean scores are sums in another order
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < found.result.size(); ++i) {
          auto const at = static_cast<std::int64_t>(i);
          wrong += found.result[i] != expected.result[as_size(at / channels * whole + at % channels)] ? 1 : 0;
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("windows of 256 channels are aligned to the bottom right, and rows that see nothing are zeros", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const left : {-1, 5, 200}) {
    for (std::int64_t const right : {-1, 0, 70}) {
      attention_options options;
      options.window_left = left;
      options.window_right = right;
      check_shape({1, 2, 1, 500, 400, 256}, options);
      check_shape({1, 1, 1, 200, 600, 160}, options);
    }
  }
}

TEST_CASE("attention of any number of channels is near the formula in double", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const channels : {32, 96, 192, 256}) {
    auto const width = static_cast<std::uint64_t>(channels);
    for (std::int64_t const queries : {4, 400}) {
      auto p = make_attention_problem<bfloat16>(
          {1, 4, 2, queries, 1000, channels}, testing::offset_channels{width, 0.06, 2.0},
          testing::offset_channels{width, 0.06, 4.0}, testing::offset_channels{width, 1.0, 0.5});
      p.options.is_causal = queries > 4;
      auto const expected = attention_by_formula(p);
      auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
      auto const error = error_of(found.result, expected.result);
      CAPTURE(channels, queries, error.relative_l1, error.cosine);
      CHECK(error.relative_l1 < 2e-2);
      CHECK(error.cosine > 0.9995);
      CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 0.0607);
    }
  }
}

TEST_CASE("an infinity or a NaN reaches of any number of channels what it reaches on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const channels : {80, 256}) {
    for (std::int64_t const queries : {2, 300}) {
      auto p = make_attention_problem<bfloat16>({1, 4, 4, queries, 400, channels});
      auto const at = [&](std::int64_t head, std::int64_t tokens, std::int64_t token, std::int64_t channel) {
        return as_size((head * tokens + token) * channels + channel);
      };
      p.queries[at(0, queries, 1, 3)] = store<bfloat16>(NAN);
      p.keys[at(1, 400, 395, channels - 1)] = store<bfloat16>(INFINITY);
      p.values[at(2, 400, 20, 0)] = store<bfloat16>(NAN);
      p.values[at(3, 400, 21, channels - 1)] = store<bfloat16>(INFINITY);
      auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
      auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < expected.result.size(); ++i) {
        double const a = found.result[i];
        double const b = expected.result[i];
        wrong += std::isnan(a) != std::isnan(b) || std::fabs(a - b) > 0.1 ? 1 : 0;
      }
      CAPTURE(channels, queries);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("on sm_90 attention of any number of channels is by the programs for it", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const queries : {3, 300}) {
    auto const p = make_attention_problem<bfloat16>({1, 2, 2, queries, 300, 144});
    device_attention<bfloat16> const in(exec, p, head_layout::heads_first);
    auto const plan = sage_attention2::plan_quantize(exec, p.shape);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    device_heads<bfloat16> const result(exec, {1, 2, queries, 144}, head_layout::heads_first);
    auto const heads = sage_attention2::operands(p.shape, space);
    sage_attention2::quantize(exec, p.shape, in.inputs(), {}, heads, space);
    attention_call<sage_attention2::method, bfloat16> call{p.shape, {}, heads, {result.view()}};
    call.counters = sage_attention2::counters(p.shape, space);
    CHECK((take_call<quantized_decode_model>(exec, call) || take_call<quantized_forward_model>(exec, call)) ==
          is_hopper());
    exec.wait();
  }
}

TEST_CASE("attention of 256 channels repeats bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto p = make_attention_problem<bfloat16>({2, 12, 4, 1500, 1500, 256});
  p.options.is_causal = true;
  auto const first = run_on_device<sage_attention2, bfloat16>(exec, p).found;
  for (int i = 0; i < 5; ++i) {
    auto const again = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    CHECK(again.result == first.result);
    CHECK(again.log_sum_exp == first.log_sum_exp);
  }
}
