// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/adversary.hpp>

#include "algorithm/gemm/quantized_samples.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("codes of matrices are those of the quantizer, for all extents, strides and sizes of groups", "[host]") {
  check_quantizers<float>(cpu{.threads = 1});
  check_quantizers<bfloat16>(cpu{.threads = 1});
}

TEST_CASE("matrices take quantizers with a minimum, of few bits and of floating-point codes", "[host]") {
  row_samples<float16> const samples(4, 192, false);
  cpu const exec{.threads = 1};
  check_quantized<asymmetric_quantizer<8, 64>>(exec, samples);
  check_quantized<two_to_a_byte<asymmetric_quantizer<4, 64>>>(exec, samples);
  check_quantized<asymmetric_quantizer<2, 32>>(exec, samples);
  check_quantized<scaled_float_quantizer<float8_e4m3, 64>>(exec, samples);
}

TEST_CASE("quantizing a matrix keeps the rules for programs, and all executors give the same bits", "[host][threads]") {
  row_samples<bfloat16> const samples(7, 600, false);
  check_quantized<symmetric_quantizer<8, 64>>(cpu{.threads = 2}, samples);
  check_quantized<two_to_a_byte<symmetric_quantizer<4, 64>>>(testing::adversary{.seed = 1}, samples);
  check_quantized<symmetric_quantizer<8, 512>>(testing::adversary{.seed = 2}, samples);
  check_quantized<symmetric_quantizer<8, whole_tensor>>(testing::adversary{.seed = 3}, samples);
}

TEST_CASE("a product takes a quantized matrix as it is, and gives that of its values", "[host]") {
  using quantizer = two_to_a_byte<symmetric_quantizer<4, 64>>;
  cpu const exec{.threads = 1};
  row_samples<bfloat16> const weights(40, 192, false);
  row_samples<bfloat16> const inputs(9, 192, false);
  codes_on<quantizer, cpu> quantized(exec, weights);
  std::vector<float> found(9 * 40);
  std::vector<float> expected(9 * 40);
  dequantized<quantizer, bfloat16> const source{{}, quantized.codes_view(), quantized.params_view()};
  linear<bfloat16>::forward(exec, inputs.view_of(inputs.values.data()), source,
                            matrix_view<float>(found.data(), {9, 40}));
  auto const values = quantized.dequantized<bfloat16>();
  linear<bfloat16>::forward(exec, inputs.view_of(inputs.values.data()),
                            matrix_view<bfloat16 const>(values.data(), {40, 192}),
                            matrix_view<float>(expected.data(), {9, 40}));
  exec.wait();
  CHECK(found == expected);
}

TEST_CASE("quantized matrices refuse what does not fit together", "[host]") {
  using eight = quantized_matrix<symmetric_quantizer<8, 64>>;
  using four = quantized_matrix<two_to_a_byte<symmetric_quantizer<4, 64>>>;
  using whole = quantized_matrix<symmetric_quantizer<8, whole_tensor>>;
  cpu const exec{.threads = 1};
  std::vector<float> values(4 * 100);
  std::vector<std::int8_t> codes(4 * 100);
  std::vector<int4x2> pairs(4 * 50);
  std::vector<symmetric_params> params(8);
  using matrix = matrix_view<float>;
  using eight_codes = matrix_view<std::int8_t>;
  using scales = matrix_view<symmetric_params>;
  auto const of_eight = [&](matrix from, eight_codes to, scales by) {
    return message_of([&] { eight::quantize(exec, {}, from, to, by); });
  };
  matrix const from(values.data(), {4, 100});
  eight_codes const to(codes.data(), {4, 100});
  scales const by(params.data(), {4, 2});
  CHECK(of_eight(from, to, by) == "");
  CHECK(of_eight(from, eight_codes(codes.data(), {3, 100}), by) ==
        "quantized_matrix.quantize: the codes are 3 x 100 but must be 4 x 100");
  CHECK(of_eight(from, to, scales(params.data(), {4, 1})) ==
        "quantized_matrix.quantize: the parameters are 4 x 1 but must be 4 x 2");
  CHECK(of_eight(from, eight_codes(codes.data(), {4, 100}, {0, 1}), by) ==
        "quantized_matrix.quantize: dimension 0 of the codes has 4 elements with a stride of 0");
  CHECK(of_eight(matrix(nullptr, {4, 100}), to, by) ==
        "quantized_matrix.quantize: the values have no memory but 400 elements");
  CHECK(
      message_of([&] {
        four::quantize(exec, {}, matrix(values.data(), {4, 99}), matrix_view<int4x2>(pairs.data(), {4, 49}), by);
      }) ==
      "quantized_matrix.quantize: rows have 99 columns but must have an even number for codes that are two to a byte");
  CHECK(message_of([&] {
          workspace const none(eight::plan(exec, 4, 100), {});
          whole::quantize(exec, {}, from, to, scales(params.data(), {1, 1}), none);
        }) == "quantized_matrix.quantize: the workspace is of a plan of 0 bytes but 4 rows of 100 columns need 256");
  CHECK(message_of([&] {
          eight::dequantize(exec, {}, eight_codes(codes.data(), {4, 100}), scales(params.data(), {4, 3}), from);
        }) == "quantized_matrix.dequantize: the parameters are 4 x 3 but must be 4 x 2");
  CHECK(message_of([&] { static_cast<void>(whole::plan(exec, 4, -1)); }) ==
        "quantized_matrix.quantize: the extents are 4 and -1 but must not be negative");
}
