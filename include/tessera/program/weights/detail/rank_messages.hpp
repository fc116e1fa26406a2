// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Programs of collectives of compressed weights: gathering the tables of messages, and adding what ranks sent.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What stands behind a table's sizes, so that a damaged table is not believed.
TESSERA_FN constexpr std::int64_t seal_of(std::int64_t const* sizes, std::int64_t count) {
  std::uint64_t mixed = static_cast<std::uint64_t>(count);
  for (std::int64_t i = 0; i < count; ++i) {
    mixed = (mixed ^ static_cast<std::uint64_t>(sizes[i])) * 0x9e3779b97f4a7c15U;
    mixed ^= mixed >> 29;
  }
  return static_cast<std::int64_t>(mixed);
}

/// Writes the seals of tables, one group for each.
struct seal_tables {
  static constexpr int lanes = 32;
  struct scratch_type {};

  matrix_view<std::int64_t> tables;  ///< tables x (sizes and their seal), with any stride between tables

  TESSERA_FN constexpr std::int64_t groups() const { return tables.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const count = tables.extent(1) - 1;
    for (int lane : group) {
      if (lane == 0) {
        tables(which, count) = seal_of(&tables(which, 0), count);
      }
    }
  }
};

/// Copies tables of sizes that lie apart from each other next to each other, one group for each.
struct gather_tables {
  static constexpr int lanes = 32;
  struct scratch_type {};

  matrix_view<std::int64_t const> tables;  ///< tables x numbers, with any stride between tables
  array_view<std::int64_t> target;         ///< as many numbers

  TESSERA_FN constexpr std::int64_t groups() const { return tables.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t i = lane; i < tables.extent(1); i += lanes) {
        target[which * tables.extent(1) + i] = tables(which, i);
      }
    }
  }
};

/// Adds the lists of all ranks, in their order, in float, and rounds the sums once. The program's own rank has its list
/// elsewhere than the others. A lane adds 16 bytes at a time where lists lie at multiples of them: while it added
/// single elements of bf16, it read and wrote 1 TB/s on an H200.
template <class T>
struct add_lists_of_ranks {
  static constexpr int lanes = 256;
  static constexpr int steps = 2;  ///< chunks of a lane
  struct scratch_type {};
  using chunks = row_chunks<T const>;
  static constexpr int size = chunks::size;

  matrix_view<T const> others;  ///< all ranks but the own one, in their order, x elements
  array_view<T const> own;      ///< the own list, which may be the target
  std::int64_t rank;            ///< the own one
  array_view<T> target;

  TESSERA_FN constexpr std::int64_t groups() const {
    return divide_up(target.size(), std::int64_t{lanes * steps * size});
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    chunks const of_others{others};
    chunks const of_own{{own.data, {1, own.size()}}};
    row_chunks<T> const sum{{target.data, {1, target.size()}}};
    for (int lane : group) {
      float sums[steps][size];
      std::int64_t const first = (which * lanes * steps + lane) * size;
      for (std::int64_t of = 0; of <= others.extent(0); ++of) {
        for (int step = 0; step < steps; ++step) {
          std::int64_t const column = first + step * lanes * size;
          if (column < target.size()) {
            auto const next = of == rank ? of_own.load(0, column) : of_others.load(of < rank ? of : of - 1, column);
            for (int i = 0; i < size; ++i) {
              float const value = load(next.values[i]);
              sums[step][i] = of == 0 ? value : sums[step][i] + value;
            }
          }
        }
      }
      for (int step = 0; step < steps; ++step) {
        std::int64_t const column = first + step * lanes * size;
        if (column < target.size()) {
          typename chunks::words rounded{};  // compilers store elements of fewer bits one by one
          for (int i = 0; i < size; ++i) {
            constexpr int bits = 8 * static_cast<int>(sizeof(T));
            rounded.values[i * bits / 32] |= std::uint32_t{to_bits(store<T>(sums[step][i]))} << (i * bits % 32);
          }
          if (sum.is_whole(column)) {
            *reinterpret_cast<typename chunks::words*>(sum.whole(0, column)) = rounded;
          } else {
            sum.store(0, column, bit_cast<tile_chunk<T>>(rounded));
          }
        }
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
