// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/take_call.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using with_value_means = eight_with_value_means;
constexpr auto minus_infinity = -std::numeric_limits<double>::infinity();

/// Checks against the portable program on the host, which weighs by the same codes except for the last bits of
/// exponentials.
template <class Attention = sage_attention2, class T = bfloat16>
void check_on_device(attention_problem<T> const& p, head_layout layout = head_layout::heads_first) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, static_cast<int>(layout));
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right);
  tessera::cuda const exec;
  auto const found = run_on_device<Attention, T>(exec, p, layout);
  auto const expected = run_attention_problem<Attention, T>(cpu{}, p);
  bool const is_zero = std::all_of(expected.result.begin(), expected.result.end(), [](double x) { return x == 0; });
  CHECK(found.is_clean);
  CHECK((is_zero ? found.found.result == expected.result
                 : error_of(found.found.result, expected.result).relative_l1 < 2e-3));
  CHECK(farthest(found.found.result, expected.result) < 0.07);
  CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < 1e-3);
}

template <class Attention = sage_attention2, class T = bfloat16>
void check_shape(attention_shape const& s, attention_options const& options = {},
                 head_layout layout = head_layout::heads_first) {
  auto p = make_attention_problem<T>(s);
  p.options = options;
  check_on_device<Attention, T>(p, layout);
}

attention_options causal() {
  attention_options options;
  options.is_causal = true;
  return options;
}

}  // namespace

TEST_CASE("a few queries on a GPU attend as on the host, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const queries : {1, 2, 7, 15, 16}) {
      for (std::int64_t const keys : {1, 16, 127, 128, 129, 1000, 1024, 2500}) {
        check_shape({1, 2, 1, queries, keys, channels});
        check_shape({1, 2, 1, queries, keys, channels}, causal());
      }
    }
    check_shape({3, 2, 2, 1, 9000, channels});
    check_shape({1, 1, 1, 1, 40000, channels});
  }
}

TEST_CASE("a few queries on a GPU attend as on the host, with any channels", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 48, 80, 96, 192, 256}) {
    check_shape({2, 4, 2, 1, 1900, channels});
    check_shape({1, 6, 2, 5, 260, channels}, causal());
    check_shape({40, 8, 8, 1, 300, channels});
  }
}

TEST_CASE("all query heads of a key head share its keys, also where they fill more than one block", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t group = 1; group <= 16; ++group) {
      check_shape({2, 2 * group, 2, 1, 1300, channels});
      check_shape({1, group, 1, 3, 700, channels}, causal());
    }
    check_shape({2, 16, 1, 16, 1500, channels}, causal());
    check_shape({70, 8, 8, 1, 600, channels});  // more work items than blocks
    check_shape({300, 8, 4, 2, 260, channels}, causal());
  }
}

TEST_CASE("windows of a few queries are aligned to the bottom right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const left : {-1, 0, 5, 700}) {
      for (std::int64_t const right : {-1, 0, 3}) {
        attention_options options;
        options.window_left = left;
        options.window_right = right;
        check_shape({1, 4, 2, 5, 3000, channels}, options);
        check_shape({1, 4, 2, 16, 9, channels}, options);  // of some rows nothing is seen
      }
    }
  }
}

TEST_CASE("sequences of a few queries have lengths, heads have sinks", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (bool const is_causal : {false, true}) {
      auto p = make_attention_problem<bfloat16>({5, 4, 2, 6, 2600, channels});
      p.options.is_causal = is_causal;
      p.query_lengths = {6, 1, 0, 5, 6};
      p.key_lengths = {2600, 1, 900, 0, 130};
      check_on_device(p);
      check_on_device<with_value_means>(p);
      p.sinks = {3.0F, -1.0F, 0.0F, 9.0F};
      check_on_device(p);
      p.options.window_left = 200;
      check_on_device(p);
    }
  }
}

TEST_CASE("a few queries come in any layout and of any method with scales of lanes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (head_layout const layout : {head_layout::heads_first, head_layout::tokens_first, head_layout::shifted}) {
      check_shape<sage_attention2, float16>({2, 4, 2, 3, 1200, channels}, causal(), layout);
      check_shape<four_bits>({2, 4, 2, 3, 1200, channels}, causal(), layout);
      check_shape<with_value_means>({2, 4, 2, 3, 200, channels}, {}, layout);
    }
  }
}

TEST_CASE("an infinity or a NaN reaches a few queries on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const keys : {400, 2000}) {
    auto p = make_attention_problem<bfloat16>({1, 8, 4, 2, keys, 128});
    auto const at = [&](std::int64_t head, std::int64_t tokens, std::int64_t token, std::int64_t channel) {
      return as_size((head * tokens + token) * 128 + channel);
    };
    p.queries[at(0, 2, 1, 3)] = store<bfloat16>(NAN);
    p.keys[at(1, keys, 395, 7)] = store<bfloat16>(INFINITY);
    p.values[at(2, keys, 20, 9)] = store<bfloat16>(NAN);
    auto const found = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
    CHECK(farthest(found.result, expected.result) < 0.07);
    CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 1e-3);
  }
}

TEST_CASE("a few queries have a program of their own, with TMA or without, which needs no memory for splits",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const p = make_attention_problem<bfloat16>({2, 8, 2, 3, 3000, 128});
  device_attention<bfloat16> const in(exec, p, head_layout::heads_first);
  auto const plan = sage_attention2::plan_quantize(exec, p.shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  device_heads<bfloat16> const result(exec, {2, 8, 3, 128}, head_layout::heads_first);
  auto const heads = sage_attention2::operands(p.shape, space);
  sage_attention2::quantize(exec, p.shape, in.inputs(), {}, heads, space);
  attention_call<sage_attention2::method, bfloat16> call{p.shape, {}, heads, {result.view()}};
  auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
  for (bool const is_split : {false, true}) {
    call.partials = is_split ? sage_attention2::partials(p.shape, space) : decltype(call.partials){};
    CHECK(call.partials.splits() == (is_split ? 5 : 1));
    CHECK(take_call<quantized_decode_model>(exec, call) == is_hopper());
    CHECK(take_call<detail::quantized_decode_by_warps_model>(exec, call) == !is_hopper());
    sage_attention2::forward(exec, call);
    bool is_clean = false;
    CHECK(error_of(as_doubles(result.values(exec, is_clean)), expected.result).relative_l1 < 2e-3);
    CHECK(is_clean);
  }
  exec.wait();
}

TEST_CASE("attention of a few queries repeats bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const p = make_attention_problem<bfloat16>({4, 16, 4, 1, 20000, 128});
  auto const first = run_on_device<sage_attention2, bfloat16>(exec, p).found;
  for (int i = 0; i < 5; ++i) {
    auto const again = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    CHECK(again.result == first.result);
    CHECK(again.log_sum_exp == first.log_sum_exp);
  }
}

TEST_CASE("keys and values that were quantized before serve queries that come later on a GPU, bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const queries : {1, 5, 200}) {
    auto p = make_attention_problem<bfloat16>({2, 8, 2, queries, 3000, 128});
    p.options.is_causal = true;
    p.key_lengths = {3000, 700};
    attention_shape const& s = p.shape;
    CAPTURE(queries);
    device_attention<bfloat16> const given(exec, p, head_layout::heads_first);
    auto const all = given.inputs();
    quantize_options const cached{p.options.softmax_scale, {.queries = false, .mean_scores = false}};
    auto const cache_plan = sage_attention2::plan_quantize(exec, s, cached);
    auto cache_memory = to_device(exec, std::vector<std::byte>(as_size(cache_plan.bytes()), std::byte{0xa5}));
    workspace const cache_space(cache_plan, cache_memory);
    auto const cache = sage_attention2::operands(s, cache_space, cached);
    attention_inputs<bfloat16> in = all;
    in.queries = {};
    sage_attention2::quantize(exec, s, in, cached, cache, cache_space);
    quantize_options const later{p.options.softmax_scale, {.keys = false, .values = false}};
    auto const plan = sage_attention2::plan_quantize(exec, s, later);
    auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
    workspace const space(plan, memory);
    auto heads = sage_attention2::operands(s, space, later);
    heads.keys = cache.keys;
    heads.values = cache.values;
    in = all;
    in.keys = {};
    in.values = {};
    sage_attention2::quantize(exec, s, in, later, heads, space);
    device_heads<bfloat16> const result(exec, {2, 8, queries, 128}, head_layout::heads_first);
    buffer<float> lse(exec, 2 * 8 * queries);
    attention_call<sage_attention2::method, bfloat16> call{
        s, p.options, heads, {result.view(), {lse.data(), {2, 8, queries}}}, all.query_lengths, all.key_lengths};
    call.partials = sage_attention2::partials(s, space, later);
    call.counters = sage_attention2::counters(s, space, later);
    call.work_splits = sage_attention2::work_splits(exec, s, space, later);
    sage_attention2::forward(exec, call);
    auto const expected = run_on_device<sage_attention2, bfloat16>(exec, p).found;
    bool is_clean = false;
    CHECK(as_doubles(result.values(exec, is_clean)) == expected.result);
    CHECK(is_clean);
    CHECK(as_doubles(to_host(exec, lse)) == expected.log_sum_exp);
  }
}

namespace {

constexpr std::int64_t many_keys = std::int64_t{1} << 20;
constexpr int part_keys = 4096;
constexpr int head_channels = 64;

/// A problem whose values tell in which eighth of the sequence they are, so that a program that leaves keys out is far
/// off.
__global__ void make_long_head(bfloat16* keys, bfloat16* values) {
  auto const i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::uint64_t const eighth = i / (many_keys / 8 * head_channels);
  keys[i] = store<bfloat16>(testing::gauss{}.value(1, i));
  values[i] = store<bfloat16>(0.25F * testing::gauss{}.value(2, i) + (i % 8 == eighth ? 2.0F : 0.0F));
}

/// The formula's sums over some of a row's keys.
struct key_part {
  double largest;
  double sum;
  double total[head_channels];
};

/// Makes the sums in double; a thread has a channel. The last query sees all keys, the one before it one less.
__global__ void attend_part(bfloat16 const* queries, bfloat16 const* keys, bfloat16 const* values, key_part* parts) {
  __shared__ double weights[part_keys];
  __shared__ double of_threads[head_channels];
  auto const thread = static_cast<int>(threadIdx.x);
  std::int64_t const first = std::int64_t{blockIdx.x} * part_keys;
  std::int64_t const end = many_keys - (gridDim.y - 1 - blockIdx.y);
  auto const join = [&](double of_thread, auto const& both) {
    of_threads[thread] = of_thread;
    __syncthreads();
    double all = of_threads[0];
    for (int i = 1; i < head_channels; ++i) {
      all = both(all, of_threads[i]);
    }
    __syncthreads();
    return all;
  };
  double largest = -INFINITY;
  for (int key = thread; key < part_keys; key += head_channels) {
    double score = 0;
    for (int c = 0; c < head_channels; ++c) {
      score += static_cast<double>(load(queries[blockIdx.y * head_channels + c])) *
               static_cast<double>(load(keys[(first + key) * head_channels + c]));
    }
    weights[key] = first + key < end ? score / 8 : -INFINITY;
    largest = fmax(largest, weights[key]);
  }
  largest = join(largest, [](double a, double b) { return fmax(a, b); });
  double sum = 0;
  for (int key = thread; key < part_keys; key += head_channels) {
    weights[key] = exp(weights[key] - largest);
    sum += weights[key];
  }
  sum = join(sum, [](double a, double b) { return a + b; });
  double total = 0;
  for (int key = 0; key < part_keys; ++key) {
    total += weights[key] * static_cast<double>(load(values[(first + key) * head_channels + thread]));
  }
  key_part& part = parts[blockIdx.y * gridDim.x + blockIdx.x];
  part.largest = largest;
  part.sum = sum;
  part.total[thread] = total;
}

/// The results of each row, from all of its parts.
attention_results joined(std::vector<key_part> const& parts, std::int64_t queries) {
  attention_results made;
  std::size_t const of_row = parts.size() / as_size(queries);
  for (std::size_t row = 0; row < as_size(queries); ++row) {
    double largest = minus_infinity;
    for (std::size_t i = 0; i < of_row; ++i) {
      largest = std::max(largest, parts[row * of_row + i].largest);
    }
    double sum = 0;
    std::vector<double> total(head_channels);
    for (std::size_t i = 0; i < of_row; ++i) {
      key_part const& part = parts[row * of_row + i];
      double const share = std::exp(part.largest - largest);
      sum += share * part.sum;
      for (std::size_t c = 0; c < total.size(); ++c) {
        total[c] += share * part.total[c];
      }
    }
    for (double const value : total) {
      made.result.push_back(value / sum);
    }
    made.log_sum_exp.push_back(largest + std::log(sum));
  }
  return made;
}

}  // namespace

TEST_CASE("attention over 1048576 keys on a GPU is near the formula in double, of one query and of many", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  buffer<bfloat16> keys(exec, many_keys * head_channels);
  buffer<bfloat16> values(exec, many_keys * head_channels);
  make_long_head<<<many_keys * head_channels / 256, 256>>>(keys.data(), values.data());
  cuda_ok(cudaDeviceSynchronize());
  for (std::int64_t const queries : {1, 16, 192}) {
    CAPTURE(queries);
    auto const q =
        to_device(exec, attention_samples<bfloat16>(testing::gauss{.sigma = 2.0}, 3, 1, queries * head_channels));
    buffer<key_part> parts(exec, queries * (many_keys / part_keys));
    exec.wait();
    attend_part<<<dim3(many_keys / part_keys, static_cast<unsigned>(queries)), head_channels>>>(
        q.data(), keys.data(), values.data(), parts.data());
    cuda_ok(cudaDeviceSynchronize());
    auto const expected = joined(to_host(exec, parts), queries);
    attention_shape const s{1, 1, 1, queries, many_keys, head_channels};
    auto const plan = sage_attention2::plan_forward(exec, s);
    buffer<std::byte> memory(exec, plan.bytes());
    buffer<bfloat16> result(exec, queries * head_channels);
    buffer<float> lse(exec, queries);
    attention_inputs<bfloat16> const in{{q.data(), {1, 1, queries, head_channels}},
                                        {keys.data(), {1, 1, many_keys, head_channels}},
                                        {values.data(), {1, 1, many_keys, head_channels}}};
    attention_outputs<bfloat16> const out{{result.data(), {1, 1, queries, head_channels}},
                                          {lse.data(), {1, 1, queries}}};
    sage_attention2::forward(exec, in, causal(), out, workspace(plan, memory));
    auto const sums = to_host(exec, lse);
    CHECK(error_of(as_doubles(to_host(exec, result)), expected.result).relative_l1 < 1e-2);
    CHECK(farthest(std::vector<double>(sums.begin(), sums.end()), expected.log_sum_exp) < 2e-2);
  }
}
