// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a FetchedSource has fetch\(group, fetched&, first_row, first_column\) const
#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/fetched_source.hpp>
#include <tessera/tile/staged_tile.hpp>

/// A matrix of zeros, nothing of which has to be fetched.
struct zeros {
  using value_type = tessera::bfloat16;
  template <class Group, class Tile>
  struct fetched {};
  std::int64_t rows() const { return 2; }
  std::int64_t columns() const { return 2; }
  template <class Group, class Tile>
  void load(Group const& group, Tile& tile, std::int64_t, std::int64_t) const {
    store(group, fetched<Group, Tile>{}, tile);
    group.sync();
  }
#if !defined(TESSERA_FAIL)
  template <class Group, class Tile>
  void fetch(Group const&, fetched<Group, Tile>&, std::int64_t, std::int64_t) const {}
#endif
  template <class Group, class Tile>
  void store(Group const& group, fetched<Group, Tile> const&, Tile& tile) const {
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += Group::size) {
        tile(i / Tile::columns, i % Tile::columns) = {};
      }
    }
  }
};

using group = tessera::serial_group<32>;
using tile = tessera::staged_tile<tessera::bfloat16, 4, 64>;
static_assert(tessera::FetchedSource<zeros, group, tile>);
