// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/concepts/program.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_ring.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tuning/gemm/linear.hpp>

#include "support/catch.hpp"
#include "support/gemm_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Multiplies matrices whose rows are `gap` elements longer than read, and counts wrong sums.
template <class Operand, gemm_ring_policy Policy = policy_of<small_gemm_ring_tuning>(800), class Exec>
std::int64_t wrong_in_ring(Exec const& exec, std::int64_t rows, std::int64_t columns, std::int64_t depth,
                           std::int64_t gap) {
  using value = typename gemm_operand<Operand>::value_type;
  auto const a = operand_samples<value>(rows * (depth + gap), 1);
  auto const b = operand_samples<value>(columns * (depth + gap), 2);
  matrix_view<value const> const x(a.data(), {rows, depth}, {depth + gap, 1});
  matrix_view<value const> const w(b.data(), {columns, depth}, {depth + gap, 1});
  std::vector<float> sums(static_cast<std::size_t>(rows * columns), 77.0F);
  matrix_view<float> const y(sums.data(), {rows, columns});
  gemm_ring<Operand, product_sources<dense<value>, dense<value>>, store_sums<float, plain_sum>, Policy> const program{
      {{x}, {w}}, {y, {}}};
  exec.run(program, program.tiles());
  return wrong_sums<Operand, value, float>(x, w, {}, y);
}

using matrix_product = gemm_ring<bfloat16, product_sources<dense<bfloat16>, dense<bfloat16>>,
                                 store_sums<float, plain_sum>, policy_of<gemm_ring_tuning>(800)>;
static_assert(DeviceProgram<matrix_product>);

}  // namespace

TEST_CASE("a ring of stages gives the product, whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const depth : {0, 1, 31, 32, 33, 64, 96, 128, 200}) {
    CAPTURE(depth);
    CHECK(wrong_in_ring<bfloat16>(exec, 3, 5, depth, 8 - depth % 8) == 0);
    CHECK(wrong_in_ring<bfloat16>(exec, 5, 3, depth, 0) == 0);
  }
  CHECK(wrong_in_ring<bfloat16>(exec, 129, 128, 40, 0) == 0);
  CHECK(wrong_in_ring<std::int8_t>(exec, 7, 130, 192, 0) == 0);
  CHECK(wrong_in_ring<float>(exec, 7, 9, 50, 2) == 0);
}

TEST_CASE("rings of other stages and tiles give the same product", "[host][threads]") {
  cpu const exec{.threads = 2};
  constexpr gemm_ring_policy large = policy_of<gemm_ring_tuning>(800);
  for (std::int64_t const depth : {0, 63, 64, 65, 130, 256}) {
    CAPTURE(depth);
    CHECK(wrong_in_ring<bfloat16, large>(exec, 3, 5, depth, 8 - depth % 8) == 0);
  }
  CHECK(wrong_in_ring<bfloat16, large>(exec, 129, 257, 72, 0) == 0);
  CHECK(wrong_in_ring<bfloat16, gemm_ring_policy{64, 64, 32, 64, 2, 1}>(exec, 65, 70, 200, 0) == 0);
}

TEST_CASE("a ring of stages keeps the rules for programs", "[host]") {
  CHECK(wrong_in_ring<bfloat16>(testing::adversary{.seed = 7}, 130, 9, 200, 0) == 0);
}
