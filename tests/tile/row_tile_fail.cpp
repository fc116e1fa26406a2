// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: RowWords name a value for each row: template <class T> struct row_values
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/staged_tile.hpp>

using rows = tessera::row_tile<float, tessera::shape<4, 4, 4>>;
using staged = tessera::staged_tile<float, 4, 4>;

#if defined(TESSERA_FAIL)
using chosen = tessera::gemm_tile<float, tessera::shape<4, 4, 4>>;  // its lanes need not have whole rows
#else
using chosen = rows;
#endif

void multiply(rows::group_type const& group, chosen::sum_tile const& sums, staged const& b, rows::sum_tile& totals) {
  tessera::multiply_sums<chosen, rows>(group, sums, b, totals);
}
