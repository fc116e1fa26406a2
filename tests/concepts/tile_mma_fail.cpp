// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a TileMma names its shape: static constexpr int rows, columns, depth
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/staged_tile.hpp>

using product = tessera::gemm_tile<float, tessera::shape<4, 4, 4>>;
using staged = tessera::staged_tile<float, 4, 8>;

/// Does not say how many products it adds at a time.
struct without_depth {
  using group_type = product::group_type;
  using operand_type = float;
  using sum_type = float;
  using a_tile = product::a_tile;
  using b_tile = product::b_tile;
  using sum_tile = product::sum_tile;
  static constexpr int rows = 4;
  static constexpr int columns = 4;
};

#if defined(TESSERA_FAIL)
using chosen = without_depth;
#else
using chosen = product;
#endif

void multiply(product::group_type const& group, staged const& a, staged const& b, product::sum_tile& sums) {
  tessera::multiply_staged<chosen>(group, a, b, sums);
}
