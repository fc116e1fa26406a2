// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs forward_by_warps with each of its products on codes that the host made, and compares with attention_tiles on
/// the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/byte_products.cuh>
#include <tessera/program/attention/detail/half_products.cuh>
#include <tessera/program/attention/detail/widen_to_halves.cuh>
#include <tessera/program/attention/forward_by_warps.cuh>
#include <tessera/program/attention/split_keys.cuh>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/tuning/attention/byte_products.hpp>
#include <tessera/tuning/attention/forward_by_warps.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/quantized_reference.hpp"

namespace tessera_test {

using namespace tessera;

template <class Attention, int Channels, int Sets, class StoredValue = float8_e4m3>
using halves = detail::half_products<typename Attention::method, Channels, forward_by_warps_policy{Sets}, StoredValue>;
/// 128 channels in rows of shared memory that have no gaps.
template <class Attention>
using swizzled_halves =
    detail::half_products<typename Attention::method, 128, forward_by_warps_policy{1, true}, float16>;
/// 64 channels by thread blocks of eight warps.
template <class Attention>
using eight_warps_of_halves =
    detail::half_products<typename Attention::method, 64, forward_by_warps_policy{1, false, 8}, float16>;
/// Whether a method has scores of mean queries beside codes in bytes.
template <class Attention>
inline constexpr bool has_corrections_of_bytes =
    is_smoothed_by<block_mean, typename Attention::method::score_quantizer>&&
        codes_in<typename Attention::method::score_code> == 1;
template <class Attention, int Channels, int Architecture>
using bytes_of =
    detail::byte_products<typename Attention::method, Channels,
                          policy_of<byte_products_tuning<Channels, has_corrections_of_bytes<Attention>>>(Architecture)>;

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
template <class Attention, class Products, class T, class Bias = no_bias>
attention_results run_by_warps(cuda const& exec, attention_problem<T> const& p, std::int64_t splits = 1,
                               Bias const& bias = {}) {
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
  forward_by_warps<Products, T, Bias> const program{
      {s, heads.queries, heads.keys,
       stored_values<typename Products::sources::stored_type>(exec, heads.values, memory_of_values), query_lengths,
       key_lengths, p.options.window_left, p.options.keys_behind(), writer, partials},
      bias};
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
inline bool agree(std::vector<double> const& found, std::vector<double> const& expected, double most) {
  return std::equal(found.begin(), found.end(), expected.begin(), expected.end(), [=](double a, double b) {
    return std::isfinite(b) ? std::fabs(a - b) <= most * (1.0 + std::fabs(b)) : std::isnan(a) == std::isnan(b);
  });
}

/// How a problem is run: its keys in `splits` parts, on `exec`, with a bias that is read there.
template <class Bias = no_bias>
struct warps_run {
  std::int64_t splits = 1;
  cuda exec = {};
  Bias bias = {};
};

/// Calls check(found, name) for each program of so many channels that the device has: with fp16 those of a warp of 16
/// rows and, with 128 channels, of 32; with e4m3 that of the architecture, if it has one.
template <class Attention, int Channels, class T, class Check, class Bias = no_bias>
void run_all(attention_problem<T> const& p, Check const& check, warps_run<Bias> const& how = {}) {
  check(run_by_warps<Attention, halves<Attention, Channels, 1>>(how.exec, p, how.splits, how.bias), "one set");
  check(run_by_warps<Attention, halves<Attention, Channels, 1, float16>>(how.exec, p, how.splits, how.bias),
        "one set, values in fp16");
  constexpr bool are_smoothed = is_smoothed_by<block_mean, typename Attention::method::score_quantizer>;
  if constexpr (Channels == 64 && !are_smoothed && std::is_same_v<Bias, no_bias>) {
    using wide = eight_warps_of_halves<Attention>;
    if (!how.exec.template lacks<forward_by_warps<wide, T, Bias>>()) {
      check(run_by_warps<Attention, wide>(how.exec, p, how.splits, how.bias), "eight warps");
    }
  }
  if constexpr (Channels == 128) {
    check(run_by_warps<Attention, halves<Attention, Channels, 2>>(how.exec, p, how.splits, how.bias), "two sets");
    check(run_by_warps<Attention, halves<Attention, Channels, 2, float16>>(how.exec, p, how.splits, how.bias),
          "two sets, values in fp16");
    if constexpr (codes_in<typename Attention::method::score_code> == 1) {
      using swizzled = swizzled_halves<Attention>;
      if (!how.exec.template lacks<forward_by_warps<swizzled, T, Bias>>()) {
        check(run_by_warps<Attention, swizzled>(how.exec, p, how.splits, how.bias), "one set in swizzled rows");
      }
    }
  }
  using of_ada = bytes_of<Attention, Channels, 890>;
  using of_blackwell = bytes_of<Attention, Channels, 1200>;
  if (!how.exec.template lacks<forward_by_warps<of_ada, T, Bias>>()) {
    check(run_by_warps<Attention, of_ada>(how.exec, p, how.splits, how.bias), "e4m3, sm_89");
  }
  if (!how.exec.template lacks<forward_by_warps<of_blackwell, T, Bias>>()) {
    check(run_by_warps<Attention, of_blackwell>(how.exec, p, how.splits, how.bias), "e4m3, sm_120");
  }
}

/// The most that results and log-sum-exps may differ by: as a relative L1 distance, and of numbers of magnitude 1.
struct most_distance {
  double of_results;
  double of_log_sum_exps;
};

/// Compares with the host, whose bias is `of_host`.
template <class Attention, int Channels, class T, class Bias = no_bias>
void check_by_warps(attention_problem<T> const& p, warps_run<Bias> const& how = {},
                    most_distance const& most = {4e-3, 1e-4}, Bias const& of_host = {}) {
  attention_shape const& s = p.shape;
  auto const expected = run_attention_problem<Attention, T>(cpu{}, p, of_host);
  auto const check = [&](attention_results const& found, char const* program) {
    CAPTURE(s.queries, s.keys, s.channels, s.value_channels, p.options.is_causal, p.options.window_left, how.splits,
            program);
    CHECK(error_of(found.result, expected.result).relative_l1 < most.of_results);
    CHECK(agree(found.log_sum_exp, expected.log_sum_exp, most.of_log_sum_exps));
  };
  run_all<Attention, Channels>(p, check, how);
}

}  // namespace tessera_test
