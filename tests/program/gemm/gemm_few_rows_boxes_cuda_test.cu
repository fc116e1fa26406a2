// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/exec/explain.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>

#include "program/gemm/products_of_coded_rows.cuh"
#include "program/gemm/products_of_scaled_rows.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using model = gemm_few_rows_boxes_model;
using pairs = two_to_a_byte<symmetric_quantizer<4, 128>>;
using long_pairs = two_to_a_byte<symmetric_quantizer<4, 256>>;
using bytes = symmetric_quantizer<8, 128>;

bool has_program() {
  return cuda::is_compiled_for<900> && cuda{}.state->architecture() == 900;
}

template <class Q, class Value = bfloat16>
void check_few(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0) {
  CAPTURE(tokens, rows, columns, gap);
  CHECK(wrong_sums_of<model, Q, Value>(tokens, rows, columns, gap) == 0);
}

/// The program that a device would choose.
template <class Q>
std::string program_for(int architecture, std::int64_t tokens, std::int64_t rows, std::int64_t columns) {
  described_cuda const device = cuda::described({.architecture = architecture, .multiprocessors = 132});
  using source_type = scaled_codes<Q, bfloat16>;
  constexpr int in_element = source_type::is_packed ? 2 : 1;
  auto* const place = reinterpret_cast<bfloat16*>(std::uintptr_t{4096});
  source_type const source{{},
                           {reinterpret_cast<stored_code<Q>*>(place), {rows, columns / in_element}},
                           {reinterpret_cast<typename Q::params_type*>(place), {rows, columns / Q::group}}};
  source_linear_problem<bfloat16, source_type, bfloat16, plain_sum> const call{
      {place, {tokens, columns}}, source, {place, {tokens, rows}}, {}};
  return std::string(explain(device, call).choices.at(0).program);
}

}  // namespace

#define TESSERA_NEEDS_BOXES()                     \
  TESSERA_NEEDS_CUDA();                           \
  if (!has_program()) {                           \
    TESSERA_SKIP("only sm_90a has this program"); \
  }

TEST_CASE("few rows times boxes of coded weights are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_BOXES();
  check_extents<model>();
}

TEST_CASE("few rows times boxes of coded weights fill the chip", "[cuda]") {
  TESSERA_NEEDS_BOXES();
  check_many_rows<model>();
}

TEST_CASE("few rows times boxes of coded weights of every kind are right", "[cuda]") {
  TESSERA_NEEDS_BOXES();
  check_kinds<model>();
}

TEST_CASE("rows of tiny weights and of zeros beside others keep their exactness in boxes", "[cuda]") {
  TESSERA_NEEDS_BOXES();
  check_tiny_weights<model>();
}

TEST_CASE("infinite and NaN inputs make the same of boxes of coded weights as of others", "[cuda]") {
  TESSERA_NEEDS_BOXES();
  check_special_inputs<model>();
}

TEST_CASE("few rows times boxes of a broken stream are those with what decoding makes of it", "[cuda]") {
  TESSERA_NEEDS_BOXES();
  check_broken_streams<model>();
}

TEST_CASE("few rows times boxes of scaled codes are as exact as fp32 sums, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_BOXES();
  for (std::int64_t const tokens : {1, 2, 7, 8, 9, 15, 16}) {
    check_few<pairs>(tokens, 70, 384);
    check_few<bytes, float16>(tokens, 70, 256);
  }
  for (std::int64_t const rows : {32, 33, 47, 48, 63, 64, 65, 200, 4224, 4225, 4300, 8200, 8500}) {
    check_few<pairs>(5, rows, 640);
    check_few<pairs, float16>(13, rows, 128);
  }
  for (std::int64_t const columns : {128, 256, 512, 896, 1024, 1152, 2048, 2176, 4096, 5120}) {
    check_few<pairs>(3, 40, columns);
    check_few<pairs>(16, 40, columns, 16);
    check_few<bytes>(11, 40, columns, 32);
    check_few<long_pairs>(16, 70, 2 * columns);
  }
  check_few<pairs>(16, 4300, 4352);
  check_few<bytes>(7, 4300, 4352);
}

TEST_CASE("NaN inputs of boxes of scaled codes reach the sums that they belong to alone", "[cuda]") {
  TESSERA_NEEDS_BOXES();
  auto const inputs = inputs_with_nans();
  CHECK(wrong_sums_of<model, pairs, bfloat16>(3, 33, 256, 0, &inputs) == 0);
}

TEST_CASE("boxes are chosen where weights fit them, on sm_90 alone", "[cuda]") {
  if (!described_cuda::is_compiled_for<900>) {
    TESSERA_SKIP("this test is not compiled for sm_90a");
  }
  CHECK(program_for<pairs>(900, 16, 64, 256) == model::name);
  CHECK(program_for<long_pairs>(900, 1, 64, 256) == model::name);
  CHECK(program_for<pairs>(900, 16, 31, 256) == gemm_few_rows_model::name);  // fewer rows than a thread block takes
  CHECK(program_for<two_to_a_byte<symmetric_quantizer<4, 64>>>(900, 16, 64, 256) == gemm_few_rows_scaled_model::name);
  CHECK(program_for<pairs>(900, 17, 64, 256) == gemm_from_source_model::name);
  if constexpr (described_cuda::is_compiled_for<800>) {
    CHECK(program_for<pairs>(800, 16, 64, 256) == gemm_few_rows_scaled_model::name);
  }
}
