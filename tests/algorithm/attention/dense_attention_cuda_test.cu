// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/program/attention/split_keys.hpp>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/guarded_memory.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// How far results may be from attention in double: the rounding of weights, and of results.
template <class T>
double dense_distance() {
  return std::is_same_v<T, bfloat16> ? 0.032 : 0.004;
}

/// Checks a problem against attention in double, in memory that begins as rubbish. A fast program must run: there is
/// one for all GPUs.
template <class T>
void check_dense_on_device(attention_problem<T> const& p, head_layout layout = head_layout::heads_first,
                           memory_handle memory = std::make_shared<device_memory>()) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, static_cast<int>(layout));
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right, p.query_lengths, p.key_lengths);
  tessera::cuda exec;
  exec.memory = std::move(memory);
  exec.options.refuses_slower_programs = layout != head_layout::shifted && s.keys > 0;
  auto const expected = attention_by_formula(p);
  for (bool const with_log_sum_exps : {true, false}) {
    auto const found = run_on_device<dense_attention, T>(exec, p, layout, with_log_sum_exps);
    CHECK(found.is_clean);
    CHECK(farthest(found.found.result, expected.result) < dense_distance<T>());
    if (with_log_sum_exps) {
      CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < 2e-4);
    }
  }
}

template <class T>
void check_dense_shape(attention_shape const& shape, attention_options const& options = {},
                       head_layout layout = head_layout::heads_first) {
  auto p = make_attention_problem<T>(shape);
  p.options = options;
  check_dense_on_device(p, layout);
}

constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("dense attention on a GPU is attention, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 64, 80, 128, 144, 192, 208, 256}) {
    for (std::int64_t const keys : {0, 1, 7, 79, 80, 81, 127, 128, 129, 159, 160, 161, 320, 321}) {
      check_dense_shape<bfloat16>({1, 2, 1, 5, keys, channels});
    }
    for (std::int64_t const queries : {0, 1, 7, 63, 64, 65, 127, 128, 129, 191, 192, 193, 385}) {
      check_dense_shape<bfloat16>({1, 2, 2, queries, 200, channels}, {.is_causal = queries % 2 == 1});
    }
    check_dense_shape<float16>({2, 4, 2, 150, 333, channels}, {.is_causal = true});
    check_dense_shape<float16>({1, 2, 2, 150, 333, channels});
  }
  check_dense_shape<bfloat16>({0, 2, 2, 5, 5, 64});
}

TEST_CASE("dense attention on a GPU takes heads of any strides", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (head_layout const layout : {head_layout::tokens_first, head_layout::shifted}) {
    for (std::int64_t const channels : {48, 128, 256}) {
      check_dense_shape<bfloat16>({2, 6, 3, 70, 130, channels}, {.is_causal = true}, layout);
      check_dense_shape<float16>({2, 2, 1, 1, 1, channels}, {}, layout);
    }
  }
}

TEST_CASE("dense attention on a GPU has windows, scales, lengths and sinks", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    auto p = make_attention_problem<bfloat16>({2, 4, 2, 300, 550, channels});
    for (attention_options const& options :
         {attention_options{.is_causal = true}, attention_options{.softmax_scale = 0.03F, .window_left = 100},
          attention_options{.window_left = 20, .window_right = 30},
          attention_options{.is_causal = true, .window_left = 0}, attention_options{.window_right = 3},
          attention_options{.is_causal = true, .window_left = 300}}) {
      p.options = options;
      check_dense_on_device(p);
    }
    p.options = {.is_causal = true};
    p.sinks = {0.5F, -3.0F, 100.0F, -std::numeric_limits<float>::infinity()};
    check_dense_on_device(p);
    p.query_lengths = {300, 31};
    p.key_lengths = {0, 129};
    check_dense_on_device(p);
    p.key_lengths = {20, 550};  // the first queries see no key
    check_dense_on_device(p);
    p.options = {};
    check_dense_on_device(p);
  }
}

TEST_CASE("dense attention on a GPU shares work items among multiprocessors", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    if (is_hopper()) {
      auto const plan = dense_attention::plan_forward(tessera::cuda{}, {1, 1, 1, 70, 9000, channels});
      CHECK(plan.bytes() > 2 * 70 * 4 * channels);  // two splits or more leave their sums there
    }
    for (bool const is_causal : {false, true}) {
      check_dense_shape<bfloat16>({1, 1, 1, 70, 9000, channels}, {.is_causal = is_causal});
      check_dense_shape<bfloat16>({1, 2, 1, 500, 3000, channels}, {.is_causal = is_causal});
    }
    auto p = make_attention_problem<bfloat16>({2, 1, 1, 100, 5000, channels});
    p.query_lengths = {100, 50};
    p.key_lengths = {1200, 5000};
    p.sinks = {1.0F};
    check_dense_on_device(p);
    p.options.is_causal = true;
    check_dense_on_device(p);
  }
}

TEST_CASE("dense attention on a GPU takes as many work items as blocks have turns", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({3, 80, 20, 260, 260, 64});
  p.options.is_causal = true;
  check_dense_on_device(p);
  check_dense_shape<bfloat16>({2, 80, 80, 260, 140, 128});
  tessera::cuda const exec;
  auto const first = run_on_device<dense_attention, bfloat16>(exec, p);
  auto const again = run_on_device<dense_attention, bfloat16>(exec, p);
  CHECK(first.found.result == again.found.result);
  CHECK(first.found.log_sum_exp == again.found.log_sum_exp);
}

TEST_CASE("dense attention on a GPU does not read tokens beyond a sequence's length", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    auto p = make_attention_problem<bfloat16>({2, 2, 1, 200, 340, channels});
    p.query_lengths = {200, 3};
    p.key_lengths = {330, 5};
    auto const expected = run_on_device<dense_attention, bfloat16>(tessera::cuda{}, p);
    attention_shape const& s = p.shape;
    for (std::int64_t i = 0; i < s.batch * s.keys * s.channels; ++i) {
      std::int64_t const token = i / s.channels % s.keys;
      if (token >= p.key_lengths[as_size(i / s.channels / s.keys)]) {
        p.keys[as_size(i)] = p.values[as_size(i)] = store<bfloat16>(quiet_nan);
      }
    }
    auto const found = run_on_device<dense_attention, bfloat16>(tessera::cuda{}, p);
    CHECK(found.found.result == expected.found.result);
    CHECK(found.found.log_sum_exp == expected.found.log_sum_exp);
  }
}

TEST_CASE("dense attention on a GPU makes NaN of rows that see NaN or infinite scores, and of no others", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (float const bad : {quiet_nan, std::numeric_limits<float>::infinity()}) {
      auto p = make_attention_problem<bfloat16>({1, 1, 1, 300, 300, channels});
      p.options.is_causal = true;
      for (bfloat16& query : p.queries) {
        query = store<bfloat16>(std::fabs(load(query)));  // so that infinite keys have infinite scores
      }
      p.keys[as_size(170 * channels + 3)] = store<bfloat16>(bad);
      auto const found = run_on_device<dense_attention, bfloat16>(tessera::cuda{}, p).found;
      auto const expected = attention_by_formula(p);
      std::int64_t wrong = 0;
      for (std::int64_t query = 0; query < 300; ++query) {
        double const result = found.result[as_size(query * channels)];
        double const lse = found.log_sum_exp[as_size(query)];
        bool const is_near = std::fabs(result - expected.result[as_size(query * channels)]) < 0.1 &&
                             std::fabs(lse - expected.log_sum_exp[as_size(query)]) < 1e-3;
        wrong += (query >= 170 ? std::isnan(result) && std::isnan(lse) : is_near) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
    auto p = make_attention_problem<float16>({1, 1, 1, 4, 200, channels});
    for (float16& query : p.queries) {
      query = store<float16>(0.25F);
    }
    p.keys[7] = store<float16>(-std::numeric_limits<float>::infinity());  // a weight of zero
    check_dense_on_device(p);
  }
}

TEST_CASE("dense attention on a GPU takes sequences that lie one behind the other", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    CHECK(distance_of_packed<dense_attention>(channels) < dense_distance<bfloat16>());
  }
}

TEST_CASE("dense attention reads nothing before or behind its operands", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const edge : {guarded_edge::before, guarded_edge::behind}) {
    for (std::int64_t const channels : {16, 64, 80, 128, 144, 192, 208, 256}) {
      auto p = make_attention_problem<bfloat16>({1, 2, 2, 65, 129, channels});
      p.options.is_causal = true;
      check_dense_on_device(p, head_layout::heads_first, std::make_shared<guarded_resource>(edge));
    }
  }
}

namespace {

/// What explain() says of a call for a described device. `change(in, out)`: what is different from a usual call.
template <class Result = bfloat16, class Functions = attention_functions<>, class Change>
std::string explained(cuda_device_description const& device, Change const& change, Functions const& functions = {},
                      std::int64_t queries = 80) {
  auto const on = tessera::cuda::described(device);
  std::vector<bfloat16> memory(80 * 64 + 8);
  std::vector<Result> results(80 * 64);
  attention_inputs<bfloat16> in{
      {memory.data(), {1, 1, queries, 64}}, {memory.data(), {1, 1, 64, 64}}, {memory.data(), {1, 1, 64, 64}}};
  attention_outputs<Result> out{{results.data(), {1, 1, queries, 64}}};
  change(in, out);
  auto const plan = dense_attention::plan_forward(on, {1, 1, 1, queries, 64, 64});
  std::vector<std::byte> space(static_cast<std::size_t>(plan.bytes()) + 256);
  auto* const first = space.data() + (256 - reinterpret_cast<std::uintptr_t>(space.data()) % 256) % 256;
  return explain(on,
                 [&](auto const& exec) {
                   dense_attention::forward(exec, in, {}, out, workspace(plan, {first, plan.bytes()}), functions);
                 })
      .text();
}
constexpr auto unchanged = [](auto&, auto&) {};

}  // namespace

TEST_CASE("dense attention without wgmma splits keys where blocks of queries leave multiprocessors idle", "[cuda]") {
  using splits = tessera::detail::dense_warps_splits;
  constexpr std::int64_t most = most_attention_splits;
  CHECK(splits::count({2, 16, 16, 16384, 16384, 128}, 108, most) == 1);  // blocks enough
  CHECK(splits::count({1, 8, 8, 256, 300, 128}, 108, most) == 1);        // keys too few
  for (std::int64_t const channels : {64, 128, 256}) {
    attention_shape const shape{1, 8, 8, 256, 32768, channels};
    std::int64_t const found = splits::count(shape, 108, most);
    CHECK(found > 4);
    CHECK(splits::count(shape, 108, 3) <= 3);  // memory for no more
    std::vector<float> memory(as_size(splits::floats(shape, found)));
    auto const partials = splits::of(shape, found, {memory.data(), {static_cast<std::int64_t>(memory.size())}});
    CHECK(partials.splits() == found);
    CHECK(static_cast<void const*>(&partials.rows(found - 1, 0, 7, 255) + 1) == memory.data() + memory.size());
    CHECK(splits::of(shape, 1, {}).rows.data == nullptr);
    auto const described = tessera::cuda::described({.architecture = 800, .multiprocessors = 108});
    dense_splits const planned = dense_splits_of(described, shape);
    CHECK(planned.floats == splits::floats(shape, found));
    tessera::dense_attention_call<bfloat16, bfloat16> call{};
    call.shape = shape;
    call.key_splits = planned.key_splits;
    CHECK(splits::count_of(described, call) == found);
    call.key_splits = 0;  // as plans of other programs leave it: memory decides
    CHECK(splits::count_of(described, call) == 1);
    call.work_splits = {memory.data(), {static_cast<std::int64_t>(memory.size())}};
    CHECK(splits::count_of(described, call) == found);
  }
}

TEST_CASE("dense attention says why its fast programs do not take a call", "[cuda]") {
  cuda_device_description const hopper{.architecture = 900, .multiprocessors = 132};
  auto const shifts = [](auto& in, auto&) { in.keys.data += 3; };
  auto const spreads = [](auto&, auto& out) { out.result.strides[3] = 80; };
  std::int32_t const tiles[2] = {};
  auto const listed = [&](auto& in, auto&) {
    std::int64_t const blocks = divide_up(in.queries.extent(2), std::int64_t{64});
    in.block_list = {{tiles, {1, 1, blocks}}, {tiles, {1, 1, blocks, 1}}};
  };
  CHECK_THAT(explained(hopper, unchanged),
             contains(cuda::is_compiled_for<900> ? "dense_forward (TMA, wgmma)" : "portable"));
  if (cuda::is_compiled_for<900>) {  // else that is the reason, whatever else there is
    CHECK_THAT(explained(hopper, shifts), contains("TMA cannot load keys of these strides"));
    CHECK_THAT(explained(hopper, spreads), contains("the stride of results along head_dim is 80 but must be 1"));
    CHECK_THAT(explained<float>(hopper, unchanged), contains("dense_by_warps (cp.async, mma.sync)"));
    CHECK_THAT(explained<float>(hopper, unchanged, {}, 64), contains("dense_tiles (cp.async, mma.sync)"));
  }
  if constexpr (cuda::is_compiled_for<800>) {
    for (cuda_device_description const& device :
         {cuda_device_description{.architecture = 800, .multiprocessors = 108, .shared_bytes = 163 * 1024},
          cuda_device_description{.architecture = 860, .multiprocessors = 84, .shared_bytes = 99 * 1024}}) {
      CHECK_THAT(explained(device, unchanged), contains("dense_by_warps (cp.async, mma.sync)"));
      CHECK_THAT(explained(device, unchanged, {}, 64), contains("dense_tiles (cp.async, mma.sync)"));
      CHECK_THAT(explained(device, shifts), contains("keys do not lie in rows that begin at multiples of 16 bytes"));
      CHECK_THAT(explained(device, spreads), contains("the stride of results along head_dim is 80 but must be 1"));
      CHECK_THAT(explained<float>(device, unchanged), contains("dense_by_warps (cp.async, mma.sync)"));
      for (std::int64_t const queries : {64, 80}) {  // dense_tiles takes no terms and lists from it
        CHECK_THAT(explained(device, unchanged, attention_functions<slope_bias>{}, queries),
                   contains("dense_by_warps (cp.async, mma.sync)"));
        CHECK_THAT(explained(device, listed, {}, queries), contains("dense_by_warps (cp.async, mma.sync)"));
      }
    }
  }
}
