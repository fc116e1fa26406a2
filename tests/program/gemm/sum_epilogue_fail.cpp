// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: an epilogue takes the sum at \(row, column\)
#include <tessera/exec/cpu.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/tile/source/dense.hpp>

struct store {
  tessera::matrix_view<float> result;
#if defined(TESSERA_FAIL)
  void operator()(float sum) const {
    result(0, 0) = sum;
  }
#else
  void operator()(std::int64_t row, std::int64_t column, float sum) const {
    result(row, column) = sum;
  }
#endif
};

using source = tessera::dense<float>;

std::int64_t tiles(tessera::gemm_tiles<float, source, source, store> const& product) {
  return product.tiles();
}
