// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/algorithm/gemm/linear.cuh>

#include "program/gemm/products_of_coded_rows.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("few rows times coded weights on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_extents<gemm_few_rows_coded_model>();
}

TEST_CASE("few rows times coded weights on a GPU fill the chip", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_many_rows<gemm_few_rows_coded_model>();
}

TEST_CASE("few rows times weights of every kind on a GPU are right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<gemm_few_rows_coded_model>();
}

TEST_CASE("rows of tiny weights and of zeros beside others keep their exactness in few rows on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_tiny_weights<gemm_few_rows_coded_model>();
}

TEST_CASE("infinite and NaN inputs make the same of coded weights in few rows on a GPU as of others", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_special_inputs<gemm_few_rows_coded_model>();
}

TEST_CASE("few rows times a broken stream on a GPU are those with what decoding makes of it", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_broken_streams<gemm_few_rows_coded_model>();
}
