// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithm/attention/attention_codes_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

attention_options options_of(bool is_causal, std::int64_t left = -1, std::int64_t right = -1) {
  attention_options options;
  options.is_causal = is_causal;
  options.window_left = left;
  options.window_right = right;
  return options;
}

/// Whether some work items were split.
bool check_split(attention_shape const& s, attention_options const& options = {}) {
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels);
  CAPTURE(options.is_causal, options.window_left, options.window_right);
  auto p = make_attention_problem<bfloat16>(s);
  p.options = options;
  device_codes<> const codes(p);
  auto const portable = codes.portable();
  auto const whole = codes.whole();
  auto const shared = codes.shared();
  CHECK(error_of(whole.result, portable.result).relative_l1 < 4e-3);
  CHECK(error_of(shared.result, portable.result).relative_l1 < 4e-3);
  CHECK(error_of(shared.result, whole.result).relative_l1 < 1e-3);  // weights are rounded alike
  CHECK(farthest(shared.log_sum_exp, whole.log_sum_exp) < 1e-4);
  CHECK(farthest(shared.log_sum_exp, portable.log_sum_exp) < 0.0607);
  auto const left = codes.work_splits_on_host();
  return std::any_of(left.begin(), left.end(), [](float x) { return !std::isnan(x); });
}

}  // namespace

TEST_CASE("few work items on a GPU are shared along their keys, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const queries : {17, 127, 128, 129, 191, 192, 193}) {
      CHECK(check_split({1, 2, 1, queries, 5000, channels}) == is_hopper());
      CHECK(check_split({1, 2, 1, queries, 5000, channels}, options_of(true)) == is_hopper());
    }
    for (std::int64_t const keys : {1, 127, 128, 129, 191, 192, 193, 1000}) {
      check_split({1, 2, 2, 100, keys, channels});
      check_split({1, 2, 2, 100, keys, channels}, options_of(true));
    }
    CHECK(check_split({2, 3, 1, 400, 16385, channels}) == is_hopper());
    CHECK(check_split({1, 1, 1, 20, 100001, channels}) == is_hopper());
  }
  CHECK(check_split({1, 8, 8, 1024, 32768, 128}) == is_hopper());
}

TEST_CASE("the last work items on a GPU are shared where the others fill all multiprocessors", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::int64_t const machine = exec.state->multiprocessors();
  for (std::int64_t const channels : {64, 128}) {
    CHECK(check_split({1, machine + 3, 1, 150, 5000, channels}) == is_hopper());
    CHECK(check_split({1, machine / 2 + 5, 1, 250, 4000, channels}) == is_hopper());
    CHECK(check_split({2, machine + 12, machine + 12, 70, 2500, channels}) == is_hopper());
    check_split({1, machine, 1, 192, 2500, channels});
  }
}

TEST_CASE("few causal work items and windows on a GPU are shared, also where rows see nothing", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    CHECK(check_split({1, 8, 8, 2048, 2048, channels}, options_of(true)) == is_hopper());
    CHECK(check_split({1, 8, 2, 3000, 3100, channels}, options_of(true)) == is_hopper());
    check_split({1, 2, 2, 5000, 4000, channels}, options_of(true));
    check_split({1, 4, 2, 3000, 9000, channels}, options_of(false, 2500));
    check_split({1, 4, 2, 3000, 9000, channels}, options_of(true, 2500));
    check_split({1, 4, 2, 9000, 4500, channels}, options_of(false, 2500, 70));
  }
}

TEST_CASE("shared work items on a GPU are near the formula in double", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (bool const is_causal : {false, true}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 6000, 64}, testing::offset_channels{64, 0.06, 2.0},
                                              testing::offset_channels{64, 0.06, 4.0},
                                              testing::offset_channels{64, 1.0, 0.5});
    p.options.is_causal = is_causal;
    auto const expected = attention_by_formula(p);
    auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    auto const error = error_of(found.result, expected.result);
    CAPTURE(error.relative_l1, error.cosine);
    CHECK(error.relative_l1 < 1e-2);
    CHECK(error.cosine > 0.9999);
    CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 3e-2);
  }
}

TEST_CASE("a NaN reaches of shared work items on a GPU what it reaches of whole ones", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 2, 300, 5000, 128});
  auto const at = [](std::int64_t head, std::int64_t tokens, std::int64_t token, std::int64_t channel) {
    return as_size((head * tokens + token) * 128 + channel);
  };
  p.queries[at(0, 300, 37, 3)] = store<bfloat16>(NAN);
  p.values[at(0, 5000, 20, 9)] = store<bfloat16>(NAN);
  p.values[at(1, 5000, 21, 10)] = store<bfloat16>(INFINITY);
  device_codes<> const codes(p);
  auto const whole = codes.whole();
  auto const shared = codes.shared();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < whole.result.size(); ++i) {
    double const a = shared.result[i];
    double const b = whole.result[i];
    wrong += std::isnan(a) != std::isnan(b) || std::fabs(a - b) > 0.02 ? 1 : 0;
  }
  CHECK(wrong == 0);
  CHECK(std::count_if(whole.result.begin(), whole.result.end(), [](double x) { return std::isnan(x); }) > 300);
}

TEST_CASE("shared causal work items on a GPU repeat bit for bit, where warpgroups of a block see different tiles",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (attention_shape const& shape : {attention_shape{1, 8, 2, 3000, 3100, 128}, {1, 8, 8, 2000, 4096, 128}}) {
    auto p = make_attention_problem<bfloat16>(shape);
    p.options = options_of(true);
    device_codes<> const codes(p);
    auto const first = codes.shared();
    int differences = 0;  // 28 of 40 runs while scales could be overwritten before they had come
    for (int i = 0; i < 40; ++i) {
      auto const again = codes.shared();
      differences += again.result == first.result && again.log_sum_exp == first.log_sum_exp ? 0 : 1;
    }
    CHECK(differences == 0);
  }
}

TEST_CASE("shared work items on a GPU repeat bit for bit, and need their memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto p = make_attention_problem<bfloat16>({1, 8, 2, 1000, 9000, 128});
  auto const first = run_on_device<sage_attention2, bfloat16>(exec, p).found;
  for (int i = 0; i < 5; ++i) {
    auto const again = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    CHECK(again.result == first.result);
    CHECK(again.log_sum_exp == first.log_sum_exp);
  }
  device_codes<> const codes(p);
  auto const memory = codes.work_splits();
  CHECK((memory.size() > 0) == is_hopper());
  CHECK(codes.by_warpgroups(memory) == is_hopper());
  CHECK_FALSE(codes.by_warpgroups({}));  // the portable program shares them
  if (memory.size() > 0) {
    CHECK(codes.by_warpgroups(memory.slice(0, 0, memory.size() / 3)));
    CHECK(codes.by_warpgroups(memory.slice(0, 0, 1)));
  }
  auto const plan = sage_attention2::plan_forward(exec, p.shape);
  auto const small = sage_attention2::plan_forward(cpu{}, p.shape);
  buffer<std::byte> bytes(exec, small.bytes());
  if (small.bytes() < plan.bytes()) {
    CHECK_THROWS_AS(sage_attention2::work_splits(exec, p.shape, workspace(small, bytes)), shape_error);
  }
}
