// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program of GPUs without wgmma, on codes that the host made, against attention_tiles on the host: weights have the
// same codes, so that results differ by the order of sums alone, and, with products of e4m3, by the 13 bits that tensor
// cores of sm_89 keep of sums of a tile. These run where code for sm_89 or sm_120 does: compiled as PTX for sm_89, also
// on later GPUs.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/program/attention/detail/byte_products.cuh>
#include <tessera/program/attention/detail/half_products.cuh>
#include <tessera/program/attention/detail/widen_to_halves.cuh>
#include <tessera/program/attention/forward_by_warps.cuh>
#include <tessera/program/attention/split_keys.cuh>
#include <tessera/sage_attention2.hpp>
#include <tessera/tuning/attention/byte_products.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/guarded_memory.cuh"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Attention, int Channels, int Sets, class StoredValue = float8_e4m3>
using halves = detail::half_products<typename Attention::method, Channels, Sets, StoredValue>;
template <class Attention, int Channels, int Architecture>
using bytes_of = detail::byte_products<typename Attention::method, Channels,
                                       policy_of<byte_products_tuning<Channels>>(Architecture)>;

/// Whether thread blocks, of which each takes 1 KiB more than it asks for, fit the 100 KiB of a multiprocessor of sm_89
/// or sm_120, as many as the program asks for.
template <int Channels, int Architecture>
constexpr bool is_small() {
  using program = forward_by_warps<bytes_of<sage_attention2, Channels, Architecture>, bfloat16>;
  return program::blocks_per_multiprocessor * (detail::launch_shape<program>::shared_bytes + 1024) <= 100 * 1024;
}
static_assert(is_small<64, 890>() && is_small<128, 890>() && is_small<64, 1200>() && is_small<128, 1200>());

/// Values as a program takes them: the codes, or the numbers that widen_to_halves makes of them in `memory`.
template <class StoredValue>
quantized_value_heads<StoredValue> stored_values(cuda const& exec, quantized_value_heads<float8_e4m3> const& values,
                                                 buffer<float16>& memory) {
  if constexpr (std::is_same_v<StoredValue, float16>) {
    auto const& codes = values.codes;
    detail::widen_to_halves const program{reinterpret_cast<uint4 const*>(codes.data),
                                          reinterpret_cast<uint4*>(memory.data()), codes.size() / 16};
    exec.run(program, program.groups());
    quantized_value_heads<float16> found{};
    found.codes = {memory.data(),
                   {codes.extent(0), codes.extent(1), codes.extent(2), codes.extent(3), codes.extent(4)}};
    found.scales = values.scales;
    found.mean = values.mean;
    return found;
  } else {
    return values;
  }
}

/// Runs the program with such products, with the keys in `splits` parts, over codes that the host made.
template <class Attention, class Products, class T>
attention_results run_by_warps(cuda const& exec, attention_problem<T> const& p, std::int64_t splits = 1) {
  using method = typename Attention::method;
  using state = typename method::softmax::state_type;
  attention_shape const& s = p.shape;
  auto const made = make_operands<Attention>(cpu{}, p);
  typename Attention::regions const layout("test", s);
  std::vector<std::byte> const bytes(made.memory.data(), made.memory.data() + layout.plan.bytes());
  auto memory = to_device(exec, bytes);
  auto const heads = layout.operands(workspace(layout.plan, memory));
  auto const query_lengths = to_device(exec, p.query_lengths);
  auto const key_lengths = to_device(exec, p.key_lengths);
  std::int64_t const rows = s.batch * s.query_heads * s.queries;
  auto results = to_device(exec, std::vector<T>(as_size(rows * s.channels_of_values()), store<T>(-777.0F)));
  auto log_sum_exps = to_device(exec, std::vector<float>(as_size(rows), -777.0F));
  attention_writer<method, T> const writer{
      s,
      heads.queries.mean_scores,
      heads.values.scales,
      heads.values.mean,
      query_lengths,
      {},
      {},
      {results.data(), {s.batch, s.query_heads, s.queries, s.channels_of_values()}},
      {log_sum_exps.data(), {s.batch, s.query_heads, s.queries}}};
  buffer<attention_row<state>> split_rows(exec, splits * rows);
  buffer<float> split_totals(exec, splits * rows * s.channels_of_values());
  attention_partials<state> partials;
  if (splits > 1) {
    partials = {{split_totals.data(), {splits, s.batch, s.query_heads, s.queries, s.channels_of_values()}},
                {split_rows.data(), {splits, s.batch, s.query_heads, s.queries}}};
  }
  buffer<float16> memory_of_values(exec, heads.values.codes.size());
  forward_by_warps<Products, T> const program{
      s,
      heads.queries,
      heads.keys,
      stored_values<typename Products::sources::stored_type>(exec, heads.values, memory_of_values),
      query_lengths,
      key_lengths,
      p.options.window_left,
      p.options.keys_behind(),
      writer,
      partials};
  exec.run(program, program.groups());
  if (splits > 1) {
    merge_attention<method, T> const merge{partials, writer};
    exec.run(merge, merge.groups());
  }
  auto const found = to_host(exec, results);
  auto const sums = to_host(exec, log_sum_exps);
  exec.wait();
  return {as_doubles(found), std::vector<double>(sums.begin(), sums.end())};
}

/// Whether numbers are near each other, and NaN or infinite in the same places.
bool agree(std::vector<double> const& found, std::vector<double> const& expected, double most) {
  return std::equal(found.begin(), found.end(), expected.begin(), expected.end(), [=](double a, double b) {
    return std::isfinite(b) ? std::fabs(a - b) <= most * (1.0 + std::fabs(b)) : std::isnan(a) == std::isnan(b);
  });
}

/// Calls check(found, name) for each program of so many channels that the device has: with fp16 those of a warp of 16
/// rows and, with 128 channels, of 32; with e4m3 that of the architecture, if it has one.
template <class Attention, int Channels, class T, class Check>
void run_all(attention_problem<T> const& p, std::int64_t splits, Check const& check, cuda const& exec = {}) {
  check(run_by_warps<Attention, halves<Attention, Channels, 1>>(exec, p, splits), "one set");
  check(run_by_warps<Attention, halves<Attention, Channels, 1, float16>>(exec, p, splits), "one set, values in fp16");
  if constexpr (Channels == 128) {
    check(run_by_warps<Attention, halves<Attention, Channels, 2>>(exec, p, splits), "two sets");
    check(run_by_warps<Attention, halves<Attention, Channels, 2, float16>>(exec, p, splits),
          "two sets, values in fp16");
  }
  using of_ada = bytes_of<Attention, Channels, 890>;
  using of_blackwell = bytes_of<Attention, Channels, 1200>;
  if (!exec.template lacks<forward_by_warps<of_ada, T>>()) {
    check(run_by_warps<Attention, of_ada>(exec, p, splits), "e4m3, sm_89");
  }
  if (!exec.template lacks<forward_by_warps<of_blackwell, T>>()) {
    check(run_by_warps<Attention, of_blackwell>(exec, p, splits), "e4m3, sm_120");
  }
}

/// Compares with the host.
template <class Attention, int Channels, class T>
void check_by_warps(attention_problem<T> const& p, std::int64_t splits = 1, cuda const& exec = {}) {
  attention_shape const& s = p.shape;
  auto const expected = run_attention_problem<Attention, T>(cpu{}, p);
  auto const check = [&](attention_results const& found, char const* program) {
    CAPTURE(s.queries, s.keys, s.channels, s.value_channels, p.options.is_causal, p.options.window_left, splits,
            program);
    CHECK(error_of(found.result, expected.result).relative_l1 < 4e-3);
    CHECK(agree(found.log_sum_exp, expected.log_sum_exp, 1e-4));
  };
  run_all<Attention, Channels>(p, splits, check, exec);
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("attention by warps is the host's, whatever the lengths", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 7, 63, 64, 65, 127, 128, 129, 255, 257, 700}) {
    auto p = make_attention_problem<bfloat16>({1, 4, 2, tokens, tokens, 64});
    check_by_warps<sage_attention2, 64>(p);
    p.options.is_causal = true;
    check_by_warps<sage_attention2, 64>(p);
    auto wide = make_attention_problem<bfloat16>({2, 2, 1, tokens, 500, 128});
    check_by_warps<sage_attention2, 128>(wide);
    wide.options.is_causal = tokens <= 500;
    check_by_warps<sage_attention2, 128>(wide);
  }
}

TEST_CASE("attention by warps has fewer channels, codes of 4 bits and other channels of values", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 48, 64}) {
    check_by_warps<sage_attention2, 64>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, channels}));
  }
  for (std::int64_t const channels : {80, 112, 128}) {
    check_by_warps<sage_attention2, 128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, channels}));
  }
  check_by_warps<sage_attention2, 128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 64, 128}));
  check_by_warps<sage_attention2, 128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 128, 48}));
}

TEST_CASE("attention by warps sees windows, and keys of each sequence, in several splits", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({2, 2, 1, 300, 900, 64});
  p.options.window_left = 130;
  p.options.window_right = 5;
  check_by_warps<sage_attention2, 64>(p);
  p.options = {};
  p.query_lengths = {300, 77};
  p.key_lengths = {900, 131};
  check_by_warps<sage_attention2, 64>(p);
  p.key_lengths = {0, 900};
  check_by_warps<sage_attention2, 64>(p);
  auto wide = make_attention_problem<bfloat16>({1, 2, 1, 140, 1100, 128});
  for (std::int64_t const splits : {2, 3, 5, 12}) {
    check_by_warps<sage_attention2, 128>(wide, splits);
  }
}

TEST_CASE("attention by warps takes large scores, and NaN and infinity reach the rows that see them", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const size : {8.0F, 60.0F}) {  // scales from 1/32 on, and some of each
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 64});
    for (auto& query : p.queries) {
      query = store<bfloat16>(size * load(query));
    }
    check_by_warps<sage_attention2, 64>(p);
  }
  for (float const value : {not_a_number, infinity}) {
    for (bool const is_causal : {false, true}) {
      for (bool const is_query : {false, true}) {
        CAPTURE(value, is_causal, is_query);
        auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 300, 128});
        p.options.is_causal = is_causal;
        (is_query ? p.queries : p.keys)[as_size(200 * 128 + 3)] = store<bfloat16>(value);
        auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
        CHECK(std::any_of(expected.result.begin(), expected.result.end(), [](double x) { return std::isnan(x); }));
        run_all<sage_attention2, 128>(p, 1, [&](attention_results const& found, char const* program) {
          CAPTURE(program);
          CHECK(agree(found.result, expected.result, 0.05));
          CHECK(agree(found.log_sum_exp, expected.log_sum_exp, 1e-4));
        });
      }
    }
  }
}

TEST_CASE("attention by warps reads and writes nothing beside its memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const edge : {guarded_edge::before, guarded_edge::behind}) {
    cuda exec;
    exec.memory = std::make_shared<guarded_resource>(edge);
    check_by_warps<sage_attention2, 64>(make_attention_problem<bfloat16>({1, 2, 1, 65, 129, 48}), 1, exec);
    check_by_warps<sage_attention2, 128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 300, 112, 96}), 2, exec);
  }
}
