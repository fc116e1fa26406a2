// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/gemm/gemm_scaled_tiles.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/gemm/products_of_scaled_codes.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Q, int Rows = 1, class Output = float>
void check_product(product_shape shape, scale_order order = scale_order::groups_together) {
  CAPTURE(shape.tokens, shape.columns, shape.depth);
  CHECK(wrong_scaled_products<Q, Rows, Output>(cpu{}, shape, order) == 0);
}

}  // namespace

TEST_CASE("products of scaled codes are right, whatever the extents", "[host]") {
  for (std::int64_t const extent : {0, 1, 7, 63, 64, 65}) {
    check_product<symmetric_quantizer<8, 64>>({extent, 9, 130});
    check_product<scaled_float_quantizer<float8_e4m3, 128>, 64>({5, extent, 200}, scale_order::rows_together);
    check_product<symmetric_quantizer<8, 24>, 5>({4, 6, extent});
  }
  check_product<scaled_float_quantizer<float8_e5m2, 32>, 3, bfloat16>({70, 66, 100});
}

TEST_CASE("a product of scaled codes adds up each group's sums times both scales, in order", "[host]") {
  // 3 groups of 2 columns; sums of groups are 2, 8 and -3.
  std::int8_t const x[6] = {1, 1, 2, 2, 3, 0};
  std::int8_t const w[6] = {1, 1, 2, 2, -1, 5};
  symmetric_params const of_x[3] = {{0.5F}, {2.0F}, {1.0F}};
  symmetric_params const of_w[3] = {{4.0F}, {1.0F}, {0.25F}};
  using operand = scaled_operand<symmetric_quantizer<8, 2>>;
  float result = -1;
  cpu const exec;
  scaled_linear::forward(exec, operand{{x, {1, 6}}, {of_x, {1, 3}}}, operand{{w, {1, 6}}, {of_w, {1, 3}}},
                         matrix_view<float>(&result, {1, 1}));
  exec.wait();
  CHECK(result == 2.0F * 2.0F + 8.0F * 2.0F - 3.0F * 0.25F);
}

TEST_CASE("the product of scaled codes keeps the rules for programs", "[host]") {
  CHECK(wrong_scaled_products<symmetric_quantizer<8, 48>, 2, float>(testing::adversary{}, {66, 3, 100},
                                                                    scale_order::rows_together) == 0);
}
