// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Problems of losses whose classifier is a source: what the source reads, and the rows that it gives, for formulas and
/// for the loss of a matrix.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/source/converted.hpp>
#include <tessera/tile/source/dequantized.hpp>

#include "support/loss_gradient_reference.hpp"

namespace tessera_test {

/// How a source is made from memory. Others than these need a specialisation of their own.
template <class Source>
struct source_memory;

/// A matrix of another type.
template <class From, class Value>
struct source_memory<tessera::converted<From, Value>> {
  using code_type = From;
  using params_type = tessera::no_params;

  static std::vector<From> codes_of(std::vector<float> const& values, std::int64_t, std::int64_t,
                                    std::vector<params_type>&) {
    std::vector<From> codes;
    for (float const value : values) {
      codes.push_back(tessera::store<From>(value));
    }
    return codes;
  }
  static tessera::converted<From, Value> source(From const* codes, params_type const*, std::int64_t rows,
                                                std::int64_t columns) {
    return tessera::converted<From, Value>(tessera::matrix_view<From const>(codes, {rows, columns}));
  }
};

/// Codes of a Quantizer of groups.
template <class Q, class Value>
struct source_memory<tessera::dequantized<Q, Value>> {
  using code_type = typename Q::code_type;
  using params_type = typename Q::params_type;
  using matrix = tessera::quantized_matrix<Q>;

  static std::vector<code_type> codes_of(std::vector<float> const& values, std::int64_t rows, std::int64_t columns,
                                         std::vector<params_type>& params) {
    std::vector<code_type> codes(values.size());
    params.resize(static_cast<std::size_t>(rows * matrix::groups(columns)));
    tessera::cpu const exec{.threads = 1};
    matrix::quantize(exec, {}, tessera::matrix_view<float const>(values.data(), {rows, columns}),
                     tessera::matrix_view<code_type>(codes.data(), {rows, columns}),
                     tessera::matrix_view<params_type>(params.data(), {rows, matrix::groups(columns)}));
    exec.wait();
    return codes;
  }
  static tessera::dequantized<Q, Value> source(code_type const* codes, params_type const* params, std::int64_t rows,
                                               std::int64_t columns) {
    return {{}, {codes, {rows, columns}}, {params, {rows, matrix::groups(columns)}}};
  }
};

/// A problem, of which `rounded` has the rows that the source gives as its classifier.
template <class Source, class Label = std::int64_t>
struct stored_problem {
  using value_type = typename Source::value_type;
  using memory = source_memory<Source>;

  loss_problem<value_type, Label> rounded;
  std::vector<typename memory::code_type> codes;
  std::vector<typename memory::params_type> params = {};

  Source source() const { return memory::source(codes.data(), params.data(), rounded.vocabulary, rounded.channels); }
  /// Makes the problem's rows again from codes that a test has changed.
  void round() {
    tessera::cpu const exec{.threads = 1};
    tessera::materialize(
        exec, source(),
        tessera::matrix_view<value_type>(rounded.classifier.data(), {rounded.vocabulary, rounded.channels}));
    exec.wait();
  }
  template <class Map = tessera::identity_logits>
  tessera::linear_loss_inputs<value_type, Label, Map, Source> inputs(Map const& map = {}) const {
    auto const plain = rounded.inputs(map);
    return {plain.hidden, source(), plain.labels, plain.bias, plain.weights, map, plain.class_weights};
  }
};

template <class Source, class Label = std::int64_t>
stored_problem<Source, Label> make_stored_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels,
                                                  bool with_all = false) {
  stored_problem<Source, Label> made{
      make_loss_problem<typename Source::value_type, Label>(tokens, vocabulary, channels, with_all), {}};
  double const sigma = 2.0 / std::sqrt(static_cast<double>(channels > 0 ? channels : 1));
  std::vector<float> values;
  for (std::int64_t i = 0; i < vocabulary * channels; ++i) {
    values.push_back(tessera::testing::gauss{.sigma = sigma}.value(2, static_cast<std::uint64_t>(i)));
  }
  made.codes = source_memory<Source>::codes_of(values, vocabulary, channels, made.params);
  made.round();
  return made;
}

/// fp32 rows beside bf16 hidden states, as an optimizer keeps them.
using master_rows = tessera::converted<float, tessera::bfloat16>;
/// Codes of 8 bits with a scale for each row.
template <class Value>
using row_scaled =
    tessera::dequantized<tessera::scaled_float_quantizer<tessera::float8_e4m3, tessera::whole_row>, Value>;

}  // namespace tessera_test
