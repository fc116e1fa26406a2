// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Makes the operands of quantized attention and decodes them again. With these, the formula in double is what a
/// program computes, but for the rounding of its weights.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/attention/attention.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/quantize/smoothed.hpp>

#include "support/attention_reference.hpp"

namespace tessera_test {

/// Codes and scales, and the memory that they are in.
template <class Attention>
struct made_operands {
  tessera::buffer<std::byte> memory;
  typename Attention::heads heads;
};

template <class Attention, class Executor, class T>
made_operands<Attention> make_operands(Executor const& exec, attention_problem<T> const& p) {
  auto const plan = Attention::plan_quantize(exec, p.shape);
  made_operands<Attention> made{tessera::buffer<std::byte>(exec, plan.bytes()), {}};
  for (std::byte& byte : made.memory) {
    byte = std::byte{0xa5};
  }
  tessera::workspace const space(plan, made.memory);
  made.heads = Attention::operands(p.shape, space);
  Attention::quantize(exec, p.shape, p.inputs(), {.softmax_scale = p.options.softmax_scale}, made.heads, space);
  exec.wait();
  return made;
}

template <class Code>
double code_value(Code code) {
  return static_cast<double>(tessera::load(code));
}
inline double code_value(std::int8_t code) {
  return code;
}

/// The decoded operands; keys are without their mean.
template <class Attention, class T>
reference_attention decoded_operands(attention_problem<T> const& p, made_operands<Attention> const& made) {
  using method = typename Attention::method;
  tessera::attention_shape const& s = p.shape;
  auto const& heads = made.heads;
  double const scale = p.options.softmax_scale > 0 ? static_cast<double>(p.options.softmax_scale)
                                                   : 1.0 / std::sqrt(static_cast<double>(s.channels));
  reference_attention decoded{s, {}, {}, {}};  // scores that are equal in exact arithmetic are equal
  for (std::int64_t i = 0; i < s.batch * s.query_heads * s.queries * s.channels; ++i) {
    std::int64_t const c = i % s.channels;
    std::int64_t const token = i / s.channels % s.queries;
    std::int64_t const head = i / s.channels / s.queries % s.query_heads;
    std::int64_t const b = i / s.channels / s.queries / s.query_heads;
    double const of_group =
        static_cast<double>(heads.queries.scales(b, head, method::query_groups::group_of(token))) * std::log(2.0);
    decoded.queries.push_back(heads.queries.code(b, head, token, c));
    if (c == 0) {
      decoded.factors.push_back(of_group / scale);
    }
  }
  for (std::int64_t i = 0; i < s.batch * s.key_heads * s.keys * s.channels; ++i) {
    std::int64_t const c = i % s.channels;
    std::int64_t const token = i / s.channels % s.keys;
    std::int64_t const head = i / s.channels / s.keys % s.key_heads;
    std::int64_t const b = i / s.channels / s.keys / s.key_heads;
    decoded.keys.push_back(heads.keys.code(b, head, token, c) *
                           static_cast<double>(heads.keys.scales(b, head, method::key_groups::group_of(token))));
  }
  std::int64_t const of_values = s.channels_of_values();
  for (std::int64_t i = 0; i < s.batch * s.key_heads * s.keys * of_values; ++i) {
    std::int64_t const c = i % of_values;
    std::int64_t const token = i / of_values % s.keys;
    std::int64_t const head = i / of_values / s.keys % s.key_heads;
    std::int64_t const b = i / of_values / s.keys / s.key_heads;
    double const mean = heads.values.mean.data == nullptr ? 0.0 : static_cast<double>(heads.values.mean(b, head, c));
    decoded.values.push_back(
        code_value(heads.values.code(b, head, token, c)) * static_cast<double>(heads.values.scales(b, head, c)) + mean);
  }
  return decoded;
}

/// Attention by the formula, from codes and scales: it adds the scores of mean queries, and the scores of the mean key
/// to log-sum-exps.
template <class Attention, class T>
attention_results attention_by_codes(attention_problem<T> const& p, made_operands<Attention> const& made,
                                     reference_bias const& bias = {}) {
  tessera::attention_shape const& s = p.shape;
  auto const& queries = made.heads.queries;
  auto with_corrections = [&](std::int64_t b, std::int64_t head, std::int64_t query, std::int64_t key) {
    double const given = bias ? bias(b, head, query, key) : 0.0;
    return queries.corrections.data == nullptr
               ? given
               : given + static_cast<double>(queries.correction(b, head, query / tessera::block_mean::tokens, key)) *
                             std::log(2.0);
  };
  auto expected = attention_by_formula(p, decoded_operands(p, made), with_corrections);
  for (std::size_t i = 0; queries.mean_scores.data != nullptr && i < expected.log_sum_exp.size(); ++i) {
    auto const row = static_cast<std::int64_t>(i);
    expected.log_sum_exp[i] += static_cast<double>(
        queries.mean_scores(row / s.queries / s.query_heads, row / s.queries % s.query_heads, row % s.queries));
  }
  return expected;
}

}  // namespace tessera_test
