// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `int4_codes`: the TileSource of a matrix of signed 4-bit codes, two to a byte, as whole numbers from -8 to 7 in
/// bfloat16, which holds them exactly. The scales of their quantizer are applied to the sums. That takes one
/// multiplication for each sum and group, where decoding takes one for each code.
///
///     int4_codes const weights{pairs};                        // rows x columns / 2
///     weights.load(group, tile, first_row, first_column);
///
/// or in two steps, so that codes are on their way from memory while the group does other work:
///
///     int4_codes::fetched<Group, Tile> next;                  // in registers
///     weights.fetch(group, next, first_row, first_column);
///     ...
///     weights.store(group, next, tile);                       // then sync the group
///
/// Where rows lie at multiples of 16 bytes, 32 codes move at a time.
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Widens eight codes, the first in the lowest bits. 128 + (code + 8) is a bf16 whose last four bits are code + 8,
/// which is the code with its sign bit flipped; subtracting 136 leaves the code. All of this is exact, so cutting off
/// rounds correctly. Groups of CUDA threads have instructions for it: tile/cuda/widen_int4.cuh.
template <class G>
TESSERA_FN constexpr tile_chunk<bfloat16> widen_int4(G const&, std::uint32_t codes) {
  std::uint32_t const flipped = codes ^ 0x88888888U;
  tile_chunk<bfloat16> values{};
  for (int i = 0; i < 8; ++i) {
    std::uint32_t const moved = i < 4 ? flipped << (16 - 4 * i) : flipped >> (4 * i - 16);
    float const code = bit_cast<float>((moved & 0x000f0000U) | 0x43000000U) - 136.0F;
    values.values[i] = bfloat16{static_cast<std::uint16_t>(bit_cast<std::uint32_t>(code) >> 16)};
  }
  return values;
}

struct int4_codes {
  using value_type = bfloat16;

  matrix_view<int4x2 const> pairs;  ///< rows x columns / 2, the first code of a pair in the low bits

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("codes of the source", pairs);
  }
  /// A chunk of 32 codes of a row.
  struct alignas(16) code_chunk {
    static constexpr int size = 32;
    std::uint32_t words[4];  ///< eight codes each, the first in the lowest bits
  };

  /// The codes of a tile, spread over the lanes' registers. Tile: it has chunk() and is whole chunks wide.
  template <class G, class Tile>
  struct fetched {
    static_assert(Tile::columns % code_chunk::size == 0, "tessera: tiles of fetched codes are whole 32 columns wide");
    static constexpr int in_row = Tile::columns / code_chunk::size;  ///< chunks of a row of the tile
    static constexpr int count = Tile::rows * in_row;                ///< chunks of the tile
    /// The chunks that a lane holds.
    struct part {
      /// Every Group::size-th chunk of the tile.
      code_chunk chunks[divide_up(count, G::size)];
    };
    per_lane<part, G> parts;  ///< the chunks of all lanes
  };

  TESSERA_FN constexpr std::int64_t rows() const { return pairs.extent(0); }
  TESSERA_FN constexpr std::int64_t columns() const { return 2 * pairs.extent(1); }

  /// Starts to load; codes outside of the matrix are 0.
  template <class G, class Tile>
  TESSERA_FN void fetch(G const& group, fetched<G, Tile>& to, std::int64_t first_row, std::int64_t first_column) const {
    if (has_whole_chunks(first_column, Tile::columns)) {
      fetch_whole(group, to, &pairs(first_row, first_column / 2), max(-first_row, std::int64_t{0}), rows() - first_row);
      return;
    }
    using shape = fetched<G, Tile>;
    for (int lane : group) {
      for (int i = 0; i * G::size < shape::count; ++i) {
        int const which = i * G::size + lane;
        to.parts[lane].chunks[i] =
            gather(first_row + which / shape::in_row, first_column + which % shape::in_row * code_chunk::size);
      }
    }
  }

  /// Waits for the fetched codes and writes them to a tile of the type that they were fetched for.
  template <class G, class Tile>
  TESSERA_FN void store(G const& group, fetched<G, Tile> const& from, Tile& tile) const {
    using shape = fetched<G, Tile>;
    for (int lane : group) {
      for (int i = 0; i * G::size < shape::count; ++i) {
        int const which = i * G::size + lane;
        if (which < shape::count) {
          int const column = which % shape::in_row * code_chunk::size;
          for (int word = 0; word < 4; ++word) {
            tile.chunk(which / shape::in_row, column + 8 * word) =
                widen_int4(group, from.parts[lane].chunks[i].words[word]);
          }
        }
      }
    }
  }

  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    if constexpr (requires { tile.chunk(0, 0); } && Tile::columns % code_chunk::size == 0) {
      fetched<G, Tile> codes;
      fetch(group, codes, first_row, first_column);
      store(group, codes, tile);
    } else {
      for (int lane : group) {
        for (int i = lane; i < Tile::rows * Tile::columns; i += G::size) {
          int const row = i / Tile::columns;
          int const column = i % Tile::columns;
          tile(row, column) = widen_int4(group, nibble(first_row + row, first_column + column)).values[0];
        }
      }
    }
    group.sync();
  }

 private:
  TESSERA_FN bool has_whole_chunks(std::int64_t first_column, int count) const {
    return first_column >= 0 && first_column % code_chunk::size == 0 && first_column + count <= columns() &&
           pairs.stride(1) == 1 && pairs.stride(0) % 16 == 0 && reinterpret_cast<std::uintptr_t>(pairs.data) % 16 == 0;
  }

  /// Fetches the rows [begin, end) of the tile that begins at `corner`, as far as the tile has them.
  template <class G, class Tile>
  TESSERA_FN void fetch_whole(G const& group, fetched<G, Tile>& to, int4x2 const* corner, std::int64_t begin,
                              std::int64_t end) const {
    using shape = fetched<G, Tile>;
    for (int lane : group) {
      for (int i = 0; i * G::size < shape::count; ++i) {
        int const which = i * G::size + lane;
        int const row = which / shape::in_row;
        int4x2 const* const from = corner + row * pairs.stride(0) + which % shape::in_row * (code_chunk::size / 2);
        bool const is_inside = which < shape::count && row >= begin && row < end;
        to.parts[lane].chunks[i] = is_inside ? *reinterpret_cast<code_chunk const*>(from) : code_chunk{};
      }
    }
  }

  TESSERA_FN constexpr std::uint32_t nibble(std::int64_t row, std::int64_t column) const {
    if (row < 0 || row >= rows() || column < 0 || column >= columns()) {
      return 0;
    }
    return (pairs(row, column / 2).bits >> (column % 2 * 4)) & 15U;
  }

  /// Reads a chunk code by code. Not inline: otherwise loops around it are too long to be unrolled, and the chunks that
  /// they fill are kept in memory instead of registers.
  [[gnu::noinline]] TESSERA_FN constexpr code_chunk gather(std::int64_t row, std::int64_t column) const {
    code_chunk chunk{};
    for (int word = 0; word < 4; ++word) {
      for (int i = 0; i < 8; ++i) {
        chunk.words[word] |= nibble(row, column + 8 * word + i) << (4 * i);
      }
    }
    return chunk;
  }
};

static_assert(TileSource<int4_codes>);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/cuda/widen_int4.cuh>
#endif
