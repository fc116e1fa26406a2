// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a TileSource has load\(\): template <class Group, class Tile> void load\(Group const&, Tile&,
#include <cstdint>

#include <tessera/concepts/tile_source.hpp>

struct zeros {
  using value_type = float;
  std::int64_t rows() const { return 2; }
  std::int64_t columns() const { return 2; }
#if !defined(TESSERA_FAIL)
  template <class Group, class Tile>
  void load(Group const&, Tile& tile, std::int64_t, std::int64_t) const {
    tile = {};
  }
#endif
};

template <tessera::TileSource S>
struct product {
  S weights;
};

product<zeros> result;
