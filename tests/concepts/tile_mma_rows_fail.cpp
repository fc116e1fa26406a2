// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a RowTile is a TileMma
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/rows/lane_rows.hpp>
#include <tessera/tile/staged_tile.hpp>

using product = tessera::row_tile<float, tessera::shape<4, 4, 4>>;
using staged = tessera::staged_tile<float, 4, 4>;

#if defined(TESSERA_FAIL)
using chosen = tessera::lane_rows<float, 4, 4, product::group_type>;  // words for rows that are no sums of a product
#else
using chosen = product;
#endif

void multiply(product::group_type const& group, chosen::sum_tile const& sums, staged const& b,
              product::sum_tile& totals) {
  tessera::multiply_sums<chosen, product>(group, sums, b, totals);
}
