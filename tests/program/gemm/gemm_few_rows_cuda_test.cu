// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <initializer_list>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>

#include "program/gemm/products_of_codes.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Q, class Output = bfloat16>
void check_few(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0) {
  check_codes<Q, Output>(tokens, rows, columns, gap, gemm_few_rows_model::name);
}

}  // namespace

TEST_CASE("few rows times 8-bit codes on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using quantizer = symmetric_quantizer<8, 64>;
  for (std::int64_t const tokens : {1, 2, 7, 8, 9, 15, 16}) {
    check_few<quantizer>(tokens, 70, 320);
  }
  for (std::int64_t const rows : {1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200}) {
    check_few<quantizer>(5, rows, 640);
    check_few<quantizer, float>(13, rows, 64);
  }
  for (std::int64_t const columns : {16, 32, 48, 64, 80, 512, 528, 1024, 1040, 4096, 5008}) {
    check_few<quantizer>(3, 40, columns);
    check_few<quantizer>(16, 40, columns, 16);
  }
}

TEST_CASE("few rows times packed, uneven and whole-tensor codes on a GPU are right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const columns : {32, 64, 96, 128, 160, 1024, 1056, 4128}) {
    check_few<two_to_a_byte<symmetric_quantizer<4, 32>>>(11, 140, columns);
    check_few<two_to_a_byte<asymmetric_quantizer<4, 128>>>(8, 140, columns, 16);
    check_few<symmetric_quantizer<8, whole_tensor>>(2, 140, columns);
    check_few<asymmetric_quantizer<8, 32>>(16, 140, columns);
  }
}

TEST_CASE("what few rows of codes cannot be multiplied at once is multiplied by another program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using pairs = two_to_a_byte<symmetric_quantizer<4, 64>>;
  char const* const other = program_of_many_rows(128);
  check_codes<pairs>(17, 64, 128, 0, other);
  check_codes<pairs>(4, 64, 128 + 16, 8, other);                  // rows of half a chunk more
  check_codes<pairs>(4, 64, 128, 8, other);                       // rows that do not lie at multiples of 16 bytes
  check_codes<symmetric_quantizer<8, 24>>(4, 64, 128, 0, other);  // groups of no whole chunks
}
