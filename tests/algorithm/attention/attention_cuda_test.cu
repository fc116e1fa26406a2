// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "algorithm/attention/attention_checks.cuh"
#include "support/take_call.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using with_value_means = eight_with_value_means;
using without_means = attention<eight, float8_quantizer<float8_e4m3>>;

constexpr auto minus_infinity = -std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("codes on a GPU are those of the host to the last bit, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 64, 80, 128, 144, 256}) {
    for (std::int64_t const tokens : {1, 7, 16, 127, 128, 129, 1000}) {
      check_codes_against_host<sage_attention2>({1, 2, 1, tokens, 200, channels});
      check_codes_against_host<sage_attention2>({2, 2, 2, 50, tokens, channels}, head_layout::tokens_first);
    }
    for (head_layout const layout : {head_layout::heads_first, head_layout::tokens_first, head_layout::shifted}) {
      check_codes_against_host<with_value_means>({2, 6, 2, 300, 500, channels}, layout);
      check_codes_against_host<without_means>({2, 6, 2, 300, 500, channels}, layout);
      check_codes_against_host<four_bits>({2, 6, 2, 300, 500, channels}, layout);
    }
  }
}

TEST_CASE("codes on a GPU are right over many heads and many tiles", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (attention_shape const& s :
       {attention_shape{1, 14, 14, 200, 8192, 64}, attention_shape{2, 10, 5, 1100, 5000, 128},
        attention_shape{1, 2, 2, 100, 40000, 128}, attention_shape{1, 3, 1, 300, 9000, 256}}) {
    CAPTURE(s.keys);
    auto const p = make_attention_problem<bfloat16>(s);
    auto const first = run_on_device<with_value_means, bfloat16>(exec, p);
    check_codes<with_value_means>(first.bytes, p);
    for (int again = 0; again < 3; ++again) {
      check_codes<sage_attention2>(run_on_device<sage_attention2, bfloat16>(exec, p).bytes, p);
    }
  }
}

TEST_CASE("codes of sequences that are shorter than their extent are those of the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 96, 128, 256}) {
    auto p = make_attention_problem<bfloat16>({4, 2, 2, 200, 300, channels});
    p.query_lengths = {200, 0, 77, 5};
    p.key_lengths = {300, 128, 0, 9};
    check_against_host(p);
    check_against_host<with_value_means>(p);
  }
}

TEST_CASE("attention on a GPU agrees with the host, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const tokens : {0, 1, 7, 127, 128, 129, 191, 192, 193, 1000}) {
      check_shape_against_host({1, 2, 2, tokens, tokens, channels});
      check_shape_against_host({1, 2, 1, tokens, tokens, channels}, {.is_causal = true});
    }
    for (std::int64_t const queries : {1, 129, 1000}) {
      for (std::int64_t const keys : {0, 7, 128, 700}) {
        check_shape_against_host({1, 2, 1, queries, keys, channels}, {.is_causal = true});
        check_shape_against_host({1, 1, 1, queries, keys, channels});
      }
    }
    check_shape_against_host({0, 2, 1, 10, 10, channels});
  }
}

TEST_CASE("query heads of a GPU's attention share key heads, in every sequence of a batch", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_shape_against_host({2, 8, 2, 300, 500, 128}, {.is_causal = true});
  check_shape_against_host({3, 6, 1, 200, 300, 64});
  check_shape_against_host<with_value_means>({2, 4, 2, 257, 257, 128}, {.is_causal = true});
  check_shape_against_host<without_means>({2, 4, 2, 257, 257, 128});
}

TEST_CASE("windows on a GPU are aligned to the bottom right, and rows that see nothing are zeros", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const left : {-1, 0, 5, 200}) {
      for (std::int64_t const right : {-1, 0, 70}) {
        attention_options options;
        options.window_left = left;
        options.window_right = right;
        check_shape_against_host({1, 2, 1, 500, 400, channels}, options);
        check_shape_against_host({1, 1, 1, 200, 600, channels}, options);
      }
    }
    tessera::cuda const exec;
    auto p = make_attention_problem<bfloat16>({1, 1, 1, 300, 100, channels});
    p.options.is_causal = true;
    p.values.assign(p.values.size(), store<bfloat16>(NAN));  // nor does it matter what they do not see
    auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    for (std::int64_t row = 0; row < 300; ++row) {
      for (std::int64_t c = 0; c < channels; ++c) {
        double const value = found.result[as_size(row * channels + c)];
        REQUIRE((row < 200 ? value == 0 : std::isnan(value)));
      }
      REQUIRE((found.log_sum_exp[as_size(row)] == minus_infinity) == (row < 200));
    }
  }
}

TEST_CASE("attention on a GPU takes and gives heads in any layout and touches nothing between them", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (head_layout const layout : {head_layout::heads_first, head_layout::tokens_first, head_layout::shifted}) {
      check_shape_against_host({2, 4, 2, 193, 300, channels}, {.is_causal = true}, layout);
    }
  }
}

TEST_CASE("attention on a GPU is near the formula in double", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const channels : {64, 128}) {
    auto p = make_attention_problem<bfloat16>({1, 4, 2, 400, 1000, channels}, testing::offset_channels{128, 0.06, 2.0},
                                              testing::offset_channels{128, 0.06, 4.0},
                                              testing::offset_channels{128, 1.0, 0.5});
    auto const expected = attention_by_formula(p);
    auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    auto const error = error_of(found.result, expected.result);
    CAPTURE(channels, error.relative_l1, error.cosine);
    CHECK(error.relative_l1 < 1e-2);
    CHECK(error.cosine > 0.9999);
    CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 3e-2);
    auto const without = run_on_device<sage_attention2, bfloat16>(exec, p, head_layout::heads_first, false).found;
    CHECK(without.result == found.result);
  }
}

TEST_CASE("an infinity or a NaN reaches on a GPU what it reaches on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const channels : {64, 128}) {
    for (bool const is_causal : {false, true}) {
      auto p = make_attention_problem<bfloat16>({1, 2, 2, 300, 400, channels});
      p.options.is_causal = is_causal;
      auto const at = [&](std::int64_t head, std::int64_t tokens, std::int64_t token, std::int64_t channel) {
        return as_size((head * tokens + token) * channels + channel);
      };
      p.queries[at(0, 300, 37, 3)] = store<bfloat16>(NAN);
      p.queries[at(1, 300, 299, 5)] = store<bfloat16>(-INFINITY);
      p.keys[at(1, 400, 395, 7)] = store<bfloat16>(INFINITY);
      p.keys[at(1, 400, 395, 8)] = store<bfloat16>(NAN);
      p.values[at(0, 400, 20, 9)] = store<bfloat16>(NAN);
      p.values[at(1, 400, 21, 10)] = store<bfloat16>(INFINITY);
      auto const found = run_on_device<sage_attention2, bfloat16>(exec, p);
      check_codes<sage_attention2>(found.bytes, p);
      check_codes<with_value_means>(run_on_device<with_value_means, bfloat16>(exec, p).bytes, p);
      auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < expected.result.size(); ++i) {
        double const a = found.found.result[i];
        double const b = expected.result[i];
        wrong += std::isnan(a) != std::isnan(b) || std::fabs(a - b) > 0.1 ? 1 : 0;
      }
      CAPTURE(channels, is_causal);
      CHECK(wrong == 0);
      check_log_sum_exps_against_host(found.found.log_sum_exp, expected.log_sum_exp);
    }
  }
}

TEST_CASE("zeros and equal values come back from a GPU as they do from the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const size : {0.0F, -0.0F, 1.0F, 1e-30F}) {
    CAPTURE(size);
    auto p = make_attention_problem<bfloat16>({1, 1, 1, 200, 300, 64});
    p.values.assign(p.values.size(), store<bfloat16>(size));
    check_against_host(p);
    p.keys.assign(p.keys.size(), store<bfloat16>(size));
    check_against_host(p);
    p.queries.assign(p.queries.size(), store<bfloat16>(size));
    check_against_host(p);
    check_against_host<without_means>(p);
  }
}

TEST_CASE("on sm_90 attention is for warpgroups, if there is memory for counters", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const p = make_attention_problem<bfloat16>({1, 2, 2, 300, 300, 64});
  device_attention<bfloat16> const in(exec, p, head_layout::heads_first);
  auto const plan = sage_attention2::plan_quantize(exec, p.shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  device_heads<bfloat16> const result(exec, {1, 2, 300, 64}, head_layout::heads_first);
  auto const heads = sage_attention2::operands(p.shape, space);
  sage_attention2::quantize(exec, p.shape, in.inputs(), {}, heads, space);
  attention_call<sage_attention2::method, bfloat16> call{p.shape, {}, heads, {result.view()}};
  CHECK(!take_call<quantized_forward_model>(exec, call));  // without counters
  call.counters = sage_attention2::counters(p.shape, space);
  CHECK(take_call<quantized_forward_model>(exec, call) == is_hopper());
  bool is_clean = false;
  auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
  sage_attention2::forward(exec, call);
  CHECK(error_of(as_doubles(result.values(exec, is_clean)), expected.result).relative_l1 < 4e-3);
  exec.wait();
}

TEST_CASE("sinks on a GPU take weight", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 300, 64});
  p.sinks = {3.0F, -1.0F};
  check_against_host(p);
}

TEST_CASE("attention on a GPU repeats bit for bit, also from a graph", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cudaStream_t stream{};
  cuda_ok(cudaStreamCreate(&stream));
  {
    tessera::cuda const exec{.stream = stream};
    auto p = make_attention_problem<bfloat16>({2, 12, 4, 1500, 1500, 128});
    p.options.is_causal = true;
    auto const first = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    for (int i = 0; i < 5; ++i) {
      auto const again = run_on_device<sage_attention2, bfloat16>(exec, p).found;
      CHECK(again.result == first.result);
      CHECK(again.log_sum_exp == first.log_sum_exp);
    }
    device_attention<bfloat16> const in(exec, p, head_layout::heads_first);
    device_heads<bfloat16> const result(exec, {2, 12, 1500, 128}, head_layout::heads_first);
    auto const plan = sage_attention2::plan_forward(exec, p.shape);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    cudaGraph_t graph{};
    cudaGraphExec_t executable{};
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    sage_attention2::forward(exec, in.inputs(), p.options, attention_outputs<bfloat16>{result.view()}, space);
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; ++i) {
      exec.clear(array_view<bfloat16>(result.view().data, 2 * 12 * 1500 * 128));
      cuda_ok(cudaGraphLaunch(executable, stream));
      bool is_clean = false;
      CHECK(as_doubles(result.values(exec, is_clean)) == first.result);
      CHECK(is_clean);
    }
    cuda_ok(cudaGraphExecDestroy(executable));
    cuda_ok(cudaGraphDestroy(graph));
  }
  cuda_ok(cudaStreamDestroy(stream));
}
