// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// One product of 16 x 8 sums over a depth of 12, in three multiplications, added to itself: of b, or of its rows.
struct staged_product {
  static constexpr int lanes = 32;
  struct scratch_type {
    staged_tile<float, 16, 12> a;
    staged_tile<float, 8, 12> b;
    staged_tile<float, 12, 8> b_rows;
  };
  matrix_view<float const> a;
  matrix_view<float const> b;
  matrix_view<float> sums;

  template <class Lanes>
  TESSERA_FN void operator()(Lanes const& group, std::int64_t, scratch_type& scratch) const {
    using product = gemm_tile<float, shape<16, 8, 4>, Lanes>;
    dense<float>{a}.load(group, scratch.a, 0, 0);
    dense<float>{b}.load(group, scratch.b, 0, 0);
    dense<float>{b.transposed()}.load(group, scratch.b_rows, 0, 0);
    group.sync();
    typename product::sum_tile total;
    product::clear(group, total);
    multiply_staged<product>(group, scratch.a, scratch.b, total);
    multiply_staged_rows<product>(group, scratch.a, scratch.b_rows, total);
    product::store(group, total, sums.data, sums.stride(0));
  }
};

template <class Exec>
std::int64_t wrong_sums(Exec const& exec) {
  float a[16 * 12];
  float b[8 * 12];
  float sums[16 * 8] = {};
  for (int i = 0; i < 16 * 12; ++i) {
    a[i] = static_cast<float>(testing::hash(1, static_cast<std::uint64_t>(i)) % 9) - 4.0F;
  }
  for (int i = 0; i < 8 * 12; ++i) {
    b[i] = static_cast<float>(testing::hash(2, static_cast<std::uint64_t>(i)) % 9) - 4.0F;
  }
  exec.run(staged_product{{a, {16, 12}}, {b, {8, 12}}, {sums, {16, 8}}}, 1);
  exec.wait();
  std::int64_t wrong = 0;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float expected = 0;
      for (int k = 0; k < 12; ++k) {
        expected += 2 * a[row * 12 + k] * b[column * 12 + k];
      }
      wrong += sums[row * 8 + column] == expected ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("staged tiles are multiplied over their whole depth, whichever way the second lies, and added to the sums",
          "[host]") {
  CHECK(wrong_sums(cpu{}) == 0);
  CHECK(wrong_sums(testing::adversary{}) == 0);
}
