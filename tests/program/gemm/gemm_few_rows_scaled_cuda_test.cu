// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>

#include "program/gemm/products_of_scaled_rows.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Q, class Value = bfloat16>
void check_few(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0) {
  CAPTURE(tokens, rows, columns, gap);
  CHECK(wrong_sums_of<gemm_few_rows_scaled_model, Q, Value>(tokens, rows, columns, gap) == 0);
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
  auto const inputs = inputs_with_nans();
  CHECK(wrong_sums_of<gemm_few_rows_scaled_model, pairs, bfloat16>(3, 33, 256, 0, &inputs) == 0);
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
                                 many.values, program_of_many_rows(128)) == 0);
  codes_on_device<pairs> const part(64, 128 + 32, 0);  // rows end inside of a group
  CHECK(wrong_products<bfloat16>(4, scaled_codes<pairs, bfloat16>{{}, part.source().codes, part.source().params},
                                 part.values, gemm_few_rows_model::name) == 0);
  codes_on_device<pairs> const shifted(64, 128, 8);  // rows that do not lie at multiples of 16 bytes
  CHECK(wrong_products<bfloat16>(4, scaled_codes<pairs, bfloat16>{{}, shifted.source().codes, shifted.source().params},
                                 shifted.values, program_of_many_rows(128)) == 0);
}
