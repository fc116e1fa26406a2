// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The product of GPUs without wgmma, on whatever GPU there is, against sums in double.
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_ring.cuh>

#include "algorithm/gemm/linear_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

struct product_extents {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};

/// Counts wrong results of the ring, with `gap` more elements between rows of results.
template <class Operand, class Output>
std::int64_t wrong_in_ring(product_extents const& extents, std::int64_t gap = 0) {
  using value = typename gemm_operand<Operand>::value_type;
  tessera::cuda const exec;
  auto const chunk = static_cast<std::int64_t>(16 / sizeof(value));
  auto x = sampled<value>(exec, extents.rows, extents.depth, {0, chunk}, 1);
  auto w = sampled<value>(exec, extents.columns, extents.depth, {chunk, 0}, 2);
  matrix_on_device<Output> y(exec, extents.rows, extents.columns, {0, gap});
  return wrong_on_device<Operand>(exec, x, w, y, {}, [&] {
    linear_problem<Operand, Output, plain_sum> const problem{x.on_device(), w.on_device(), y.on_device(), {}};
    REQUIRE(!gemm_ring_model::refuses(exec, problem));
    gemm_ring_model::run(exec, problem);
  });
}

/// The same for extents around those of tiles and of stages.
template <class Operand, class Output>
void check_ring() {
  auto const chunk = static_cast<std::int64_t>(16 / sizeof(typename gemm_operand<Operand>::value_type));
  for (std::int64_t const chunks : {1, 7, 8, 9, 16, 25}) {
    for (std::int64_t const rows : {1, 7, 127, 128, 129, 300}) {
      CAPTURE(chunks, rows);
      CHECK(wrong_in_ring<Operand, Output>({rows, 8, chunks * chunk}) == 0);
      CHECK(wrong_in_ring<Operand, Output>({3, rows, chunks * chunk}) == 0);
    }
  }
  CHECK(wrong_in_ring<Operand, Output>({129, 264, 9 * chunk}, 8) == 0);
  CHECK(wrong_in_ring<Operand, Output>({130, 257, 8 * chunk}, 3) == 0);
}

}  // namespace

TEST_CASE("a ring of stages on a GPU gives the product, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_ring<bfloat16, bfloat16>();
  check_ring<float16, float>();
}

TEST_CASE("a ring of stages on a GPU multiplies bytes and tf32", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_ring<std::int8_t, std::int32_t>();
  check_ring<float8_e4m3, bfloat16>();
  check_ring<tf32, float>();
}

TEST_CASE("thread blocks of a ring go from tile to tile", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_in_ring<bfloat16, bfloat16>({2100, 2300, 72}) == 0);  // 306 tiles
}

TEST_CASE("a ring of stages says which rows it does not take", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto x = sampled<bfloat16>(exec, 4, 63, {0, 1}, 1);
  auto w = sampled<bfloat16>(exec, 4, 63, {0, 1}, 2);
  matrix_on_device<bfloat16> y(exec, 4, 4, {});
  linear_problem<bfloat16, bfloat16, plain_sum> const problem{x.on_device(), w.on_device(), y.on_device(), {}};
  refusal const why = gemm_ring_model::refuses(exec, problem);
  CHECK(why.text() == "rows of inputs do not begin and end at multiples of 16 bytes");
}
