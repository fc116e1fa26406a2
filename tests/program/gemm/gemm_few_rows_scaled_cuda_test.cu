// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/source/scaled_codes.hpp>

#include "program/gemm/products_of_codes.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The sums in double of codes times scales times inputs, and how far fp32 sums may be from them.
struct expected_sum {
  double value;
  double tolerance;
};
template <class Q, class Value>
expected_sum sum_of(codes_on_device<Q> const& made, Value const* inputs, std::int64_t row) {
  constexpr int in_element = codes_on_device<Q>::in_element;
  double value = 0;
  double magnitude = 0;
  for (std::int64_t column = 0; column < made.columns; ++column) {
    auto const stored = made.codes[static_cast<std::size_t>(row * made.stride + column / in_element)];
    int code = 0;
    if constexpr (in_element == 2) {
      code = column % 2 == 0 ? low(stored) : high(stored);
    } else {
      code = stored;
    }
    double const scale = made.params[static_cast<std::size_t>(row * made.groups + column / Q::group)].scale;
    double const product = code * scale * static_cast<double>(load(inputs[column]));
    value += product;
    magnitude += std::fabs(product);
  }
  return {value, magnitude * std::ldexp(1.0, -19)};
}

/// Multiplies by scaled codes and counts sums that are not as exact as codes that are not rounded give.
template <class Q, class Value>
std::int64_t wrong_sums_of(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap,
                           char const* program, std::vector<Value> const* given = nullptr) {
  cuda const exec;
  codes_on_device<Q> const made(rows, columns, gap);
  auto const rounded = made.source();
  using source_type = scaled_codes<Q, Value>;
  source_type const source{{}, rounded.codes, rounded.params};
  auto x = sampled<Value>(exec, tokens, columns, aligned<Value>(columns), 1);
  if (given != nullptr) {
    x.host = *given;
  }
  buffer<float> outputs(exec, tokens * rows);
  std::vector<float> found(static_cast<std::size_t>(tokens * rows));
  std::memset(found.data(), 0xff, found.size() * sizeof(float));
  exec.copy(x.host, x.device);
  exec.copy(found, outputs);
  matrix_view<float> const y(outputs.data(), {tokens, rows});
  if (program != nullptr) {
    source_linear_problem<Value, source_type, float, plain_sum> const call{x.on_device(), source, y, {}};
    CHECK(explain(exec, call).choices.at(0).program == program);
  }
  linear<Value>::forward(exec, x.on_device(), source, y);
  exec.copy(outputs, found);
  exec.wait();
  std::int64_t wrong = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t row = 0; row < rows; ++row) {
      auto const expected = sum_of(made, &x.on_host()(token, 0), row);
      double const sum = found[static_cast<std::size_t>(token * rows + row)];
      bool const is_right =
          std::isnan(expected.value) ? std::isnan(sum) : std::fabs(sum - expected.value) <= expected.tolerance;
      wrong += is_right ? 0 : 1;
    }
  }
  return wrong;
}

template <class Q, class Value = bfloat16>
void check_few(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0) {
  CAPTURE(tokens, rows, columns, gap);
  CHECK(wrong_sums_of<Q, Value>(tokens, rows, columns, gap, gemm_few_rows_scaled_model::name) == 0);
}

using pairs = two_to_a_byte<symmetric_quantizer<4, 128>>;

}  // namespace

TEST_CASE("few rows times scaled 4-bit codes on a GPU are as exact as fp32 sums, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 2, 7, 8, 9, 15, 16}) {
    check_few<pairs>(tokens, 70, 384);
  }
  for (std::int64_t const rows : {32, 33, 47, 48, 63, 64, 65, 200, 4000, 8200}) {
    check_few<pairs>(5, rows, 640);
    check_few<pairs, float16>(13, rows, 128);
  }
  for (std::int64_t const columns : {128, 256, 512, 896, 1024, 1152, 4096, 5120}) {
    check_few<pairs>(3, 40, columns);
    check_few<pairs>(16, 40, columns, 16);
  }
}

TEST_CASE("few rows times scaled codes of 8 bits and of shorter and longer groups on a GPU are right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const columns : {256, 1024, 4352}) {
    check_few<two_to_a_byte<symmetric_quantizer<4, 64>>>(11, 70, columns);
    check_few<two_to_a_byte<symmetric_quantizer<4, 32>>, float16>(8, 70, columns, 16);
    check_few<two_to_a_byte<symmetric_quantizer<4, 256>>>(16, 70, columns);
    check_few<symmetric_quantizer<8, 128>>(2, 70, columns);
    check_few<symmetric_quantizer<8, 64>, float16>(16, 70, columns);
    check_few<symmetric_quantizer<8, 32>>(7, 70, columns, 16);
    check_few<two_to_a_byte<symmetric_quantizer<4, 32>>>(9, 200, columns);
    check_few<symmetric_quantizer<8, 32>, float16>(16, 70, columns);
  }
}

TEST_CASE("NaN and infinite inputs of scaled codes on a GPU reach the sums that they belong to alone", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::vector<bfloat16> inputs(3 * 256, store<bfloat16>(0.5F));
  inputs[7] = store<bfloat16>(std::numeric_limits<float>::quiet_NaN());
  inputs[2 * 256 + 200] = store<bfloat16>(std::numeric_limits<float>::quiet_NaN());
  CHECK(wrong_sums_of<pairs, bfloat16>(3, 33, 256, 0, gemm_few_rows_scaled_model::name, &inputs) == 0);
}

TEST_CASE("what few rows of scaled codes cannot be multiplied at once is multiplied by another program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const rows : {1, 7, 31}) {  // of the weights: fewer than a thread block takes
    codes_on_device<pairs> const narrow(rows, 128, 0);
    scaled_codes<pairs, bfloat16> const source{{}, narrow.source().codes, narrow.source().params};
    CHECK(wrong_products<bfloat16>(4, source, narrow.values, gemm_few_rows_model::name) == 0);
  }
  codes_on_device<pairs> const many(64, 128, 0);
  CHECK(wrong_products<bfloat16>(17, scaled_codes<pairs, bfloat16>{{}, many.source().codes, many.source().params},
                                 many.values, program_of_many_rows()) == 0);
  codes_on_device<pairs> const part(64, 128 + 32, 0);  // rows end inside of a group
  CHECK(wrong_products<bfloat16>(4, scaled_codes<pairs, bfloat16>{{}, part.source().codes, part.source().params},
                                 part.values, gemm_few_rows_model::name) == 0);
  codes_on_device<pairs> const shifted(64, 128, 8);  // rows that do not lie at multiples of 16 bytes
  CHECK(wrong_products<bfloat16>(4, scaled_codes<pairs, bfloat16>{{}, shifted.source().codes, shifted.source().params},
                                 shifted.values, program_of_many_rows()) == 0);
}
