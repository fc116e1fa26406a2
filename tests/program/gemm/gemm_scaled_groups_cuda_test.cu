// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>

#include "program/gemm/products_of_scaled_codes.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The program that this device has for products of scaled codes, or null where only the portable one runs.
char const* program_of_groups() {
  return cuda::is_compiled_for<900> && cuda{}.state->architecture() == 900 ? gemm_scaled_groups_model::name : nullptr;
}

template <class Q, int Rows = 1, class Output = float>
void check_groups(product_shape shape, scale_order order = scale_order::rows_together,
                  char const* program = program_of_groups()) {
  CAPTURE(shape.tokens, shape.columns, shape.depth);
  CHECK(wrong_scaled_products<Q, Rows, Output>(cuda{}, shape, order, program) == 0);
}

using floats = scaled_float_quantizer<float8_e4m3, 128>;
using integers = symmetric_quantizer<8, 128>;

}  // namespace

TEST_CASE("products of 8-bit codes with scales of groups on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 7, 127, 128, 129, 255, 256, 257, 300}) {
    check_groups<floats, 128>({tokens, 264, 512});
    check_groups<integers>({tokens, 264, 384});
  }
  for (std::int64_t const columns : {8, 120, 128, 136, 248, 256, 264, 520}) {
    check_groups<floats>({130, columns, 256});
    check_groups<integers, 128>({130, columns, 256});
  }
  for (std::int64_t const depth : {16, 112, 128, 144, 640, 1040}) {
    check_groups<floats, 128>({200, 280, depth});
    check_groups<integers>({200, 280, depth}, scale_order::groups_together);
  }
}

TEST_CASE("products of 8-bit codes with longer groups, other floats and 16-bit outputs on a GPU are right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_groups<scaled_float_quantizer<float8_e4m3, 256>>({130, 272, 1024});
  check_groups<scaled_float_quantizer<float8_e5m2, 128>, 128>({130, 272, 512});
  check_groups<floats, 128, bfloat16>({260, 272, 512});
  check_groups<integers, 64, bfloat16>({260, 272, 512});
}

TEST_CASE("large products of 8-bit codes on a GPU, of several tiles a thread block, are right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_groups<floats, 128>({2304, 4352, 256});
  check_groups<integers>({2304, 4352, 256});
}

TEST_CASE("scaled codes that warpgroups do not multiply are multiplied by the portable program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_groups<symmetric_quantizer<8, 64>>({70, 72, 192}, scale_order::groups_together, nullptr);
  check_groups<scaled_float_quantizer<float8_e4m3, 32>, 3>({70, 72, 100}, scale_order::rows_together, nullptr);
  check_groups<floats>({5, 7, 130}, scale_order::rows_together, nullptr);  // rows that TMA cannot load or write
}
