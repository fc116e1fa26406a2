// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests lengths of sequences, packed results and inputs, sinks and lists of tiles.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "algorithm/attention/attention_codes_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using with_value_means =
    attention<smoothed<symmetric_quantizer<8, per_thread>>, smoothed<float8_quantizer<float8_e4m3>>>;
constexpr auto minus_infinity = -std::numeric_limits<double>::infinity();

attention_options options_of(bool is_causal, std::int64_t left = -1, std::int64_t right = -1) {
  attention_options options;
  options.is_causal = is_causal;
  options.window_left = left;
  options.window_right = right;
  return options;
}

/// Rows beyond their sequence's length, and where nothing is seen, are zeros exactly; sinks take part in log-sum-exps.
template <class T>
void check_rows_of_nothing(attention_problem<T> const& p, attention_results const& found) {
  attention_shape const& s = p.shape;
  std::int64_t wrong = 0;
  for (std::int64_t row = 0; row < s.batch * s.query_heads * s.queries; ++row) {
    std::int64_t const sequence = row / s.queries / s.query_heads;
    std::int64_t const query = row % s.queries;
    std::int64_t const queries = p.query_lengths.empty() ? s.queries : p.query_lengths[as_size(sequence)];
    std::int64_t const keys = p.key_lengths.empty() ? s.keys : p.key_lengths[as_size(sequence)];
    attention_mask const mask{queries, keys, p.options.window_left, p.options.is_causal ? 0 : p.options.window_right};
    key_interval const seen = mask.of(query);
    if (seen.first < seen.end) {
      continue;
    }
    bool const has_sink = query < queries && !p.sinks.empty();
    double const lse = has_sink ? p.sinks[as_size(row / s.queries % s.query_heads)] : minus_infinity;
    double const apart = std::fabs(found.log_sum_exp[as_size(row)] - lse);
    wrong += found.log_sum_exp[as_size(row)] == lse || apart <= 1e-6 * std::fabs(lse) ? 0 : 1;
    for (std::int64_t c = 0; c < s.channels; ++c) {
      wrong += found.result[as_size(row * s.channels + c)] == 0 ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

/// Checks log-sum-exps within the error that weights rounded to e4m3 make.
void check_log_sum_exps(std::vector<double> const& found, std::vector<double> const& expected) {
  CHECK(farthest(found, expected) < 0.0607);
}

/// Checks attention with whole and with split work items against the portable programs of the device and the host.
/// Returns whether some work items were split. `apart`: the relative error that results may have.
template <class Attention = sage_attention2, class T = bfloat16>
bool check_problem(attention_problem<T> const& p, bool on_host = true, double apart = 4e-3) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels);
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right, p.query_lengths, p.key_lengths, p.sinks);
  device_codes<Attention, T> const codes(p);
  auto const portable = codes.portable();
  auto const whole = codes.whole();
  auto const shared = codes.shared();
  CHECK(error_of(whole.result, portable.result).relative_l1 < apart);
  CHECK(error_of(shared.result, portable.result).relative_l1 < apart);
  check_log_sum_exps(whole.log_sum_exp, portable.log_sum_exp);
  check_log_sum_exps(shared.log_sum_exp, portable.log_sum_exp);
  CHECK(farthest(shared.log_sum_exp, whole.log_sum_exp) < 1e-4);
  check_rows_of_nothing(p, whole);
  check_rows_of_nothing(p, shared);
  if (on_host) {
    auto const expected = run_attention_problem<Attention, T>(cpu{}, p);
    CHECK(error_of(whole.result, expected.result).relative_l1 < apart);
    check_log_sum_exps(whole.log_sum_exp, expected.log_sum_exp);
  }
  auto const left = codes.work_splits_on_host();
  return std::any_of(left.begin(), left.end(), [](float x) { return !std::isnan(x); });
}

/// A batch with all these lengths of queries, and each of them with another of keys.
attention_problem<bfloat16> problem_of_lengths(std::int64_t channels, std::size_t turn) {
  std::vector<std::int32_t> const lengths{0, 1, 127, 128, 129, 191, 192, 193, 260};
  auto const batch = static_cast<std::int64_t>(lengths.size());
  auto p = make_attention_problem<bfloat16>({batch, 2, 1, 260, 260, channels});
  p.query_lengths = lengths;
  p.key_lengths = lengths;
  std::rotate(p.key_lengths.begin(), p.key_lengths.begin() + static_cast<std::ptrdiff_t>(turn), p.key_lengths.end());
  return p;
}

}  // namespace

TEST_CASE("sequences of a padded batch have lengths on a GPU, at every edge of blocks and tiles", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (std::size_t const turn : {0, 1, 3, 8}) {
      for (bool const is_causal : {false, true}) {
        auto p = problem_of_lengths(channels, turn);
        p.options = options_of(is_causal);
        check_problem(p, turn < 2);
      }
    }
    auto p = problem_of_lengths(channels, 2);
    p.options = options_of(false, 40, 30);
    check_problem(p, false);
    p.options = options_of(true, 100);
    check_problem(p, false);
    p.key_lengths.clear();
    check_problem(p, false);
    p.key_lengths = p.query_lengths;
    p.query_lengths.clear();
    check_problem(p, false);
  }
}

TEST_CASE("work items of sequences of different lengths are shared on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (bool const is_causal : {false, true}) {
      auto p = make_attention_problem<bfloat16>({4, 4, 2, 700, 6000, channels});
      p.options = options_of(is_causal);
      p.query_lengths = {700, 0, 193, 577};
      p.key_lengths = {6000, 5000, 129, 0};
      CHECK(check_problem(p, false) == is_hopper());
      p.query_lengths = {10, 700, 700, 1};
      p.key_lengths = {6000, 700, 3001, 5999};
      p.sinks = {1.0F, -infinity, 5.0F, 30.0F};
      CHECK(check_problem(p, false, 2e-2) == is_hopper());
    }
  }
}

TEST_CASE("lengths on a GPU that are those of the batch change nothing, and wrong ones count as the nearest",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (bool const is_causal : {false, true}) {
    auto p = make_attention_problem<bfloat16>({3, 2, 2, 300, 500, 128});
    p.options = options_of(is_causal, 350);
    auto const expected = device_codes<>(p).whole();
    p.query_lengths = {300, 1000000, 300};
    p.key_lengths = {std::numeric_limits<std::int32_t>::max(), 500, 501};
    auto const found = device_codes<>(p).whole();
    CHECK(found.result == expected.result);
    CHECK(found.log_sum_exp == expected.log_sum_exp);
    p.query_lengths = {-1, 300, std::numeric_limits<std::int32_t>::min()};
    p.key_lengths = {500, -5, 500};
    auto const none = device_codes<>(p).whole();
    CHECK(none.result == std::vector<double>(none.result.size(), 0.0));
    CHECK(none.log_sum_exp == std::vector<double>(none.log_sum_exp.size(), minus_infinity));
  }
}

TEST_CASE("attention of sequences of different lengths on a GPU is near the formula in double", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (bool const is_causal : {false, true}) {
    auto p = make_attention_problem<bfloat16>({3, 4, 2, 400, 700, 128}, testing::offset_channels{128, 0.06, 2.0},
                                              testing::offset_channels{128, 0.06, 4.0},
                                              testing::offset_channels{128, 1.0, 0.5});
    p.options.is_causal = is_causal;
    p.query_lengths = {400, 250, 31};
    p.key_lengths = {500, 700, 64};
    for (bool const has_sinks : {false, true}) {
      p.sinks = has_sinks ? std::vector<float>{2.0F, -3.0F, 6.0F, 9.0F} : std::vector<float>{};
      auto const expected = attention_by_formula(p);
      auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
      auto const error = error_of(found.result, expected.result);
      CAPTURE(error.relative_l1, error.cosine, has_sinks);
      CHECK(error.relative_l1 < 2e-2);
      CHECK(error.cosine > 0.999);
      check_log_sum_exps(found.log_sum_exp, expected.log_sum_exp);
      check_rows_of_nothing(p, found);
    }
  }
}

TEST_CASE("sinks of many queries take weight on a GPU, whatever they are", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr float none = -infinity;
  for (std::int64_t const channels : {64, 128, 256}) {
    for (auto const& sinks : {std::vector<float>{none, none, none, none}, std::vector<float>{3.0F, -1.0F, none, 0.0F},
                              std::vector<float>{20.0F, -1000.0F, 60.0F, 1000.0F}}) {
      for (bool const is_causal : {false, true}) {
        auto p = make_attention_problem<bfloat16>({2, 4, 2, 200, 150, channels});
        p.options = options_of(is_causal);
        p.sinks = sinks;
        check_problem(p, is_causal, 2e-2);
      }
    }
  }
  auto p = make_attention_problem<float16>({2, 4, 4, 200, 300, 128});
  p.sinks = {1.0F, 3.0F, -2.0F, 8.0F};
  p.key_lengths = {300, 77};
  check_problem<with_value_means>(p, true, 2e-2);  // a part of the mean of values
  tessera::cuda const exec;
  auto const with = run_on_device<with_value_means, float16>(exec, p).found;
  auto const without = run_on_device<with_value_means, float16>(exec, p, head_layout::heads_first, false).found;
  CHECK(with.result == without.result);  // offsets of logits are there without log-sum-exps
}

TEST_CASE("a sink of minus infinity changes nothing on a GPU, an infinite one takes all weight", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 400, 128});
  auto const expected = device_codes<>(p).whole();
  p.sinks = {-infinity, -infinity};
  auto const same = device_codes<>(p).whole();
  CHECK(same.result == expected.result);
  CHECK(same.log_sum_exp == expected.log_sum_exp);
  p.sinks = {infinity, NAN};
  auto const found = device_codes<>(p).whole();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < 2 * 300 * 128; ++i) {
    double const x = found.result[as_size(i)];
    wrong += (i < 300 * 128 ? x == 0 : std::isnan(x)) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(found.log_sum_exp[7] == -minus_infinity);
  CHECK(std::isnan(found.log_sum_exp[300 + 7]));
}

namespace {

/// Checks that each row lies where its sequence begins, that nothing else was written, and that it is the row of
/// `padded`.
void check_packed(attention_problem<bfloat16> const& p, std::vector<std::int32_t> const& starts, std::int64_t total,
                  packed_results<bfloat16> const& found, attention_results const& padded, double lse_apart = 0.0) {
  attention_shape const& s = p.shape;
  std::vector<double> result(found.result.size(), static_cast<double>(load(device_codes<>::rubbish)));
  std::vector<double> lse(found.log_sum_exp.size(), device_codes<>::rubbish_lse);
  for (std::int64_t i = 0; i < s.batch * s.query_heads * s.queries; ++i) {
    std::int64_t const sequence = i / s.queries / s.query_heads;
    std::int64_t const token = starts[as_size(sequence)] + i % s.queries;
    bool const is_inside = starts[as_size(sequence)] >= 0 && token < total;
    if (i % s.queries < p.query_lengths[as_size(sequence)] && is_inside) {
      std::int64_t const to = token * s.query_heads + i / s.queries % s.query_heads;
      lse[as_size(to)] = padded.log_sum_exp[as_size(i)];
      std::copy_n(padded.result.begin() + i * s.channels, s.channels, result.begin() + to * s.channels);
    }
  }
  CHECK(as_doubles(found.result) == result);
  CHECK(farthest(std::vector<double>(found.log_sum_exp.begin(), found.log_sum_exp.end()), lse) <= lse_apart);
}

}  // namespace

TEST_CASE("results of sequences one behind the other on a GPU are those of a padded batch", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (bool const is_causal : {false, true}) {
      auto p = make_attention_problem<bfloat16>({5, 4, 2, 600, 4000, channels});
      p.options = options_of(is_causal);
      p.query_lengths = {193, 600, 0, 1, 128};
      p.key_lengths = {4000, 3000, 3500, 2, 127};
      device_codes<> const codes(p);
      auto const whole = codes.whole();
      auto const shared = codes.shared();
      std::vector<std::int32_t> const behind{600, 0, 922, 921, 793};
      check_packed(p, behind, 922, codes.packed(behind, 922, false), whole);
      check_packed(p, behind, 922, codes.packed(behind, 922, true), shared);
      std::vector<std::int32_t> const wrong{-50, 300, 100, std::numeric_limits<std::int32_t>::min(), 160};
      check_packed(p, wrong, 400, codes.packed(wrong, 400, false), whole);
      check_packed(p, wrong, 400, codes.packed(wrong, 400, true), shared);
    }
  }
}

TEST_CASE("lengths, sinks and starts on sm_90 are for warpgroups, lists of tiles are not", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({2, 2, 2, 300, 300, 64});
  p.query_lengths = {300, 20};
  p.key_lengths = {17, 300};
  p.sinks = {1.0F, 2.0F};
  device_codes<> const codes(p);
  using call_type = device_codes<>::call_type;
  tessera::cuda const exec;
  auto const starts = to_device(exec, std::vector<std::int32_t>{0, 300});
  auto const counts = to_device(exec, std::vector<std::int32_t>(20, 1));
  exec.wait();
  CHECK(codes.by_warpgroups({}) == is_hopper());
  CHECK(codes.by_warpgroups({}, [&](call_type& call) { call.query_starts = {starts.view(), 320}; }) == is_hopper());
  CHECK_FALSE(codes.by_warpgroups({}, [&](call_type& call) {
    call.block_list = {{counts.data(), {2, 2, 5}}, {counts.data(), {2, 2, 5, 1}}};
  }));
}

TEST_CASE("lengths on a GPU are read when a graph runs, and results repeat bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cudaStream_t stream{};
  cuda_ok(cudaStreamCreate(&stream));
  {
    tessera::cuda const exec{.stream = stream};
    auto p = make_attention_problem<bfloat16>({2, 12, 4, 1500, 1500, 128});
    p.options.is_causal = true;
    p.query_lengths = {1500, 1500};
    p.key_lengths = {1500, 1500};
    device_attention<bfloat16> in(exec, p, head_layout::heads_first);
    device_heads<bfloat16> const result(exec, {2, 12, 1500, 128}, head_layout::heads_first);
    auto const plan = sage_attention2::plan_forward(exec, p.shape);
    buffer<std::byte> memory(exec, plan.bytes());
    cudaGraph_t graph{};
    cudaGraphExec_t executable{};
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    sage_attention2::forward(exec, in.inputs(), p.options, attention_outputs<bfloat16>{result.view()},
                             workspace(plan, memory));
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&executable, graph, 0));
    for (std::int32_t const length : {1500, 700, 0, 1001}) {
      p.query_lengths = {length, 1500 - length};
      p.key_lengths = {length, 1200};
      exec.copy(p.query_lengths, in.query_lengths);
      exec.copy(p.key_lengths, in.key_lengths);
      exec.wait();
      auto const expected = run_on_device<sage_attention2, bfloat16>(exec, p).found;
      for (int i = 0; i < 2; ++i) {
        cuda_ok(cudaGraphLaunch(executable, stream));
        bool is_clean = false;
        CHECK(as_doubles(result.values(exec, is_clean)) == expected.result);
        CHECK(is_clean);
      }
    }
    cuda_ok(cudaGraphExecDestroy(executable));
    cuda_ok(cudaGraphDestroy(graph));
  }
  cuda_ok(cudaStreamDestroy(stream));
}

namespace {

/// Heads of a padded batch as tokens x heads x channels, each sequence from its start on.
std::vector<bfloat16> packed_heads(std::vector<bfloat16> const& padded, attention_shape const& s, std::int64_t heads,
                                   std::int64_t tokens, std::vector<std::int32_t> const& lengths,
                                   sequence_starts const& starts) {
  std::vector<bfloat16> packed(as_size(starts.total * heads * s.channels), device_heads<bfloat16>::rubbish);
  for (std::int64_t row = 0; row < s.batch * heads * tokens; ++row) {
    std::int64_t const sequence = row / tokens / heads;
    if (row % tokens < lengths[as_size(sequence)]) {
      std::int64_t const to = (starts.first[sequence] + row % tokens) * heads + row / tokens % heads;
      std::copy_n(padded.begin() + row * s.channels, s.channels, packed.begin() + to * s.channels);
    }
  }
  return packed;
}

}  // namespace

TEST_CASE("queries, keys and values one behind the other on a GPU give what those of a padded batch do", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::vector<std::int32_t> const query_starts{0, 193, 793, 793, 795};
  std::vector<std::int32_t> const key_starts{1501, 3501, 0, 499, 5001};  // not in order
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const most_queries : {600, 9}) {
      attention_shape const s{5, 4, 2, most_queries, 2000, channels};
      auto p = make_attention_problem<bfloat16>(s);
      p.options = options_of(true);
      p.query_lengths = {193, 600, 0, 2, 128};
      for (std::int32_t& length : p.query_lengths) {
        length = std::min(length, static_cast<std::int32_t>(most_queries));
      }
      p.key_lengths = {2000, 1500, 499, 2, 127};
      CAPTURE(channels, most_queries);
      auto const keys = to_device(exec, packed_heads(p.keys, s, 2, 2000, p.key_lengths, {key_starts, 5128}));
      auto const values = to_device(exec, packed_heads(p.values, s, 2, 2000, p.key_lengths, {key_starts, 5128}));
      auto const queries =
          to_device(exec, packed_heads(p.queries, s, 4, most_queries, p.query_lengths, {query_starts, 923}));
      auto const starts_of_queries = to_device(exec, query_starts);
      auto const starts_of_keys = to_device(exec, key_starts);
      auto const result = to_device(exec, std::vector<bfloat16>(as_size(923 * 4 * channels), device_codes<>::rubbish));
      auto const lse = to_device(exec, std::vector<float>(923 * 4, device_codes<>::rubbish_lse));
      device_attention<bfloat16> const lists(exec, p, head_layout::heads_first);
      attention_inputs<bfloat16> in = lists.inputs();
      std::int64_t const key_strides[4] = {0, channels, 2 * channels, 1};
      std::int64_t const query_strides[4] = {0, channels, 4 * channels, 1};
      in.queries = {queries.data(), {5, 4, most_queries, channels}, query_strides};
      in.keys = {keys.data(), {5, 2, 2000, channels}, key_strides};
      in.values = {values.data(), {5, 2, 2000, channels}, key_strides};
      in.query_starts = {starts_of_queries.view(), 923};
      in.key_starts = {starts_of_keys.view(), 5128};
      auto const plan = sage_attention2::plan_forward(exec, s);
      auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
      attention_outputs<bfloat16> const out{
          {const_cast<bfloat16*>(result.data()), {5, 4, most_queries, channels}, query_strides},
          {const_cast<float*>(lse.data()), {5, 4, most_queries}, {0, 1, 4}}};
      sage_attention2::forward(exec, in, p.options, out, workspace(plan, memory));
      auto const padded = run_on_device<sage_attention2, bfloat16>(exec, p).found;
      // Scores of the mean key may be sums in another order.
      check_packed(p, query_starts, 923, {to_host(exec, result), to_host(exec, lse)}, padded, 1e-5);
    }
  }
}

TEST_CASE("sequences that begin before all tokens or end behind them are read as zeros there, on a GPU as on the CPU",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  constexpr std::int64_t total = 1400;
  std::vector<std::int32_t> const starts{-50, 300, 1390, std::numeric_limits<std::int32_t>::min(), 2000};
  attention_shape const s{5, 2, 2, 300, 1200, 64};
  auto const p = make_attention_problem<bfloat16>({1, 2, 2, total, total, 64});
  std::vector<std::int32_t> const query_lengths{300, 300, 100, 20, 30};
  std::vector<std::int32_t> const key_lengths{1200, 1200, 130, 40, 50};
  std::int64_t const strides[4] = {0, total * 64, 64, 1};
  auto const run = [&](auto const& executor, bfloat16 const* queries, bfloat16 const* keys, bfloat16 const* values,
                       auto const& lists, bfloat16* result) {
    attention_inputs<bfloat16> in{{queries, {5, 2, 300, 64}, strides},
                                  {keys, {5, 2, 1200, 64}, strides},
                                  {values, {5, 2, 1200, 64}, strides},
                                  lists[0],
                                  lists[1],
                                  {lists[2], total},
                                  {lists[2], total}};
    auto const plan = sage_attention2::plan_forward(executor, s);
    buffer<std::byte> memory(executor, plan.bytes());
    sage_attention2::forward(executor, in, {}, attention_outputs<bfloat16>{{result, {5, 2, 300, 64}, strides}},
                             workspace(plan, memory));
    executor.wait();
  };
  std::vector<bfloat16> expected(as_size(total * 2 * 64), device_codes<>::rubbish);
  sequence_lengths const here[3] = {query_lengths, key_lengths, starts};
  run(cpu{}, p.queries.data(), p.keys.data(), p.values.data(), here, expected.data());
  auto const queries = to_device(exec, p.queries);
  auto const keys = to_device(exec, p.keys);
  auto const values = to_device(exec, p.values);
  auto const result = to_device(exec, std::vector<bfloat16>(expected.size(), device_codes<>::rubbish));
  auto const of_queries = to_device(exec, query_lengths);
  auto const of_keys = to_device(exec, key_lengths);
  auto const of_starts = to_device(exec, starts);
  sequence_lengths const there[3] = {of_queries.view(), of_keys.view(), of_starts.view()};
  run(exec, queries.data(), keys.data(), values.data(), there, const_cast<bfloat16*>(result.data()));
  auto const found = to_host(exec, result);
  std::vector<double> of_found;
  std::vector<double> of_expected;
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < total * 2 * 64; ++i) {
    std::int64_t const token = i / 64 % total;
    if ((token >= 300 && token < 600) || token >= 1390) {  // of the second and the third sequence
      of_found.push_back(static_cast<double>(load(found[as_size(i)])));
      of_expected.push_back(static_cast<double>(load(expected[as_size(i)])));
    } else {
      bool const is_untouched = found[as_size(i)].bits == device_codes<>::rubbish.bits &&
                                expected[as_size(i)].bits == device_codes<>::rubbish.bits;
      wrong += is_untouched ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  CHECK(error_of(of_found, of_expected).relative_l1 < 4e-3);
}

TEST_CASE("a list of tiles leaves keys out on a GPU, and what is no tile is passed over", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::vector<std::vector<std::int32_t>> const lists{{0, 2, 5},          {}, {5, -1, 1, 6, 1000000}, {3},
                                                     {0, 1, 2, 3, 4, 5}, {4}};
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const queries : {130, 7}) {
      auto p = make_attention_problem<bfloat16>({1, 2, 1, queries, 700, channels});
      std::size_t const blocks = queries == 130 ? 3 : 1;
      for (std::size_t block = 0; block < 2 * blocks; ++block) {
        p.list_counts.push_back(static_cast<std::int32_t>(lists[block].size()));
        p.list_tiles.insert(p.list_tiles.end(), lists[block].begin(), lists[block].end());
        p.list_tiles.resize(8 * (block + 1), 2);  // rubbish behind each count
      }
      for (bool const is_causal : {false, true}) {
        CAPTURE(channels, queries, is_causal);
        p.options.is_causal = is_causal;
        auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
        auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
        CHECK(error_of(found.result, expected.result).relative_l1 < 4e-3);
        CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 1e-3);
        auto const by_formula =
            attention_by_formula(p, [&](std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) {
              auto const& list = lists[as_size(head) * blocks + as_size(query / 64)];
              bool const is_there = std::find(list.begin(), list.end(), key / 128) != list.end();
              return is_there ? 0.0 : minus_infinity;
            });
        CHECK(error_of(found.result, by_formula.result).relative_l1 < 0.06);
        std::int64_t apart = 0;  // rows that see nothing are the same ones
        for (std::size_t row = 0; row < found.log_sum_exp.size(); ++row) {
          apart +=
              (found.log_sum_exp[row] == minus_infinity) == (by_formula.log_sum_exp[row] == minus_infinity) ? 0 : 1;
        }
        CHECK(apart == 0);
      }
    }
  }
}
