// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program of GPUs without wgmma, on codes that the host made, against attention_tiles on the host: weights have the
// same codes, so that results differ by the order of sums alone.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/attention/forward_by_warps.cuh>
#include <tessera/program/attention/split_keys.cuh>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Runs the program of so many channels and sets, with the keys in `splits` parts, over codes that the host made.
template <class Attention, int Channels, int Sets, class T>
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
  forward_by_warps<method, T, Channels, Sets> const program{s,
                                                            heads.queries,
                                                            heads.keys,
                                                            heads.values,
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

/// Compares with the host: with 128 channels both a warp of 16 rows and one of 32.
template <class Attention, int Channels, class T>
void check_by_warps(attention_problem<T> const& p, std::int64_t splits = 1) {
  attention_shape const& s = p.shape;
  auto const expected = run_attention_problem<Attention, T>(cpu{}, p);
  auto const check = [&](attention_results const& found, int sets) {
    CAPTURE(s.queries, s.keys, s.channels, s.value_channels, p.options.is_causal, p.options.window_left, splits, sets);
    CHECK(error_of(found.result, expected.result).relative_l1 < 4e-3);
    CHECK(agree(found.log_sum_exp, expected.log_sum_exp, 1e-4));
  };
  check(run_by_warps<Attention, Channels, 1>(cuda{}, p, splits), 1);
  if constexpr (Channels == 128) {
    check(run_by_warps<Attention, Channels, 2>(cuda{}, p, splits), 2);
  }
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("attention by warps is the host's, whatever the lengths", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 7, 127, 128, 129, 255, 257, 700}) {
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
        for (auto const& found :
             {run_by_warps<sage_attention2, 128, 1>(cuda{}, p), run_by_warps<sage_attention2, 128, 2>(cuda{}, p)}) {
          CHECK(agree(found.result, expected.result, 0.05));
          CHECK(agree(found.log_sum_exp, expected.log_sum_exp, 1e-4));
        }
      }
    }
  }
}
