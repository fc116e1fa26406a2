// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a source of a product is a TileSource, with rows\(\), columns\(\) and load\(group, tile, first_row
#include <cstdint>

#include <tessera/exec/cpu.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>

/// A matrix of zeros.
struct zeros {
  using value_type = float;
  std::int64_t rows() const { return 2; }
  std::int64_t columns() const { return 2; }
#if !defined(TESSERA_FAIL)
  template <class Lanes, class Tile>
  void load(Lanes const& group, Tile& tile, std::int64_t, std::int64_t) const {
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += Lanes::size) {
        tile(i / Tile::columns, i % Tile::columns) = 0.0F;
      }
    }
    group.sync();
  }
#endif
};

using product = tessera::gemm_tiles<float, zeros, zeros, tessera::store_sums<float, tessera::plain_sum>>;

void multiply(tessera::matrix_view<float> result) {
  product const program{{}, {}, {result, {}}};
  tessera::cpu{}.run(program, program.tiles());
}
