// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `coded_weights`: the TileSource of a bf16 matrix in a stream of codes of a fixed length (neuzip_fixed): 12 bits a
/// weight, bit for bit. Weights are decoded while they are multiplied, and the matrix in bf16 is nowhere in memory.
///
///     auto const weights = coded_matrix<neuzip_fixed<bfloat16>>::open(exec, {spec, stream, rows, columns}, space);
///     linear<bfloat16>::forward(exec, inputs, weights, outputs);
///
/// A stream has a byte of sign and mantissa and four bits of code for each weight, both in the order of weights, so
/// that any 16 weights of a row are 16 bytes and 8 bytes. Joining eight of them takes 19 instructions, and 5 more to
/// find codes that say nothing; with an exponent from elsewhere, as matrices with many zeros have, 10 more. Exponents
/// without a code (one in 10,000 to 1,000) are searched for in their block's list, lane by lane. Blocks that have no
/// codes are read weight by weight: they are right, and slow.
///
/// algorithm/weights/coded_matrix.hpp opens a stream: it checks the blocks once and writes where they are.
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/tile/codes/join_bytes.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/detail/load_elements.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {

/// How the exponents of a block are found.
enum class block_kind : std::uint16_t {
  coded,    ///< in codes
  unusual,  ///< in codes, but bytes of exponents would carry into each other, or other codes than those of listed
            ///< exponents are escapes
  raw,      ///< in bytes
  lost      ///< nowhere: the block is corrupt, and its weights are zeros
};

/// A block of an opened stream.
struct alignas(8) opened_block {
  std::uint32_t position;          ///< of its payload, in units of 16 bytes from the first one
  std::uint32_t kind_and_escapes;  ///< a block_kind << 16 | exponents that have no code

  /// A block that begins at a position of the stream.
  TESSERA_FN static constexpr opened_block of(std::uint32_t position, block_kind kind, std::uint16_t escapes) {
    return {position, static_cast<std::uint32_t>(kind) << 16 | escapes};
  }
  /// How the block is stored.
  TESSERA_FN constexpr block_kind kind() const { return static_cast<block_kind>(kind_and_escapes >> 16); }
  /// How many of its weights are escapes.
  TESSERA_FN constexpr int escapes() const { return static_cast<int>(kind_and_escapes & 0xffffU); }
  /// Whether it is stored as codes.
  TESSERA_FN constexpr bool is_coded() const { return kind_and_escapes <= 0xffffU; }
};
static_assert(static_cast<int>(block_kind::coded) == 0);

namespace detail {

/// Makes exponents of codes, four at a time, in the four bytes of a word. Contiguous: the window has no exponent from
/// elsewhere. In no sum does a byte carry into the next one in the end: bytes that borrow get it back.
template <bool Contiguous>
struct exponents_of_codes {
  std::uint32_t base;    ///< of the window, in each byte
  std::uint32_t beyond;  ///< what exponents from extra_code on exceed base + code by, modulo 2^32

  TESSERA_FN constexpr explicit exponents_of_codes(exponent_window window)
      : base(window.base * 0x01010101U), beyond(window.extra - window.base - exponent_window::neighbours) {}

  TESSERA_FN constexpr std::uint32_t operator()(std::uint32_t codes) const {
    if constexpr (Contiguous) {
      return codes + base;
    } else {
      return codes + base + ((codes + 0x02020202U) >> 4 & 0x01010101U) * beyond;
    }
  }
};

}  // namespace detail

/// Rows of a row-major matrix in a stream. Copies are views: stream and opened blocks stay where they are.
struct coded_weights {
  using value_type = bfloat16;
  static constexpr bool makes_words = true;  ///< weights are made in pairs, for gemm_few_rows

  std::uint8_t const* residuals;  ///< sign and mantissa of each weight
  std::uint8_t const* payload;    ///< where the blocks' positions count from, at a multiple of 16 bytes
  opened_block const* blocks;     ///< all blocks of the stream
  exponent_window const* window;  ///< of the stream
  int log2_block;                 ///< weights of a block, as a power of two
  std::int64_t row_count;         ///< rows of the matrix
  std::int64_t column_count;      ///< columns of the matrix

  TESSERA_FN constexpr std::int64_t rows() const { return row_count; }
  TESSERA_FN constexpr std::int64_t columns() const { return column_count; }

  /// 16 weights of a row.
  struct code_chunk {
    static constexpr int size = 16;
    std::uint32_t codes[2];      ///< eight codes each, the first in the lowest bits
    std::uint32_t residuals[4];  ///< signs and mantissas, four each
  };

  /// Whether a tile takes what lanes hold instead of elements: see ChunkedSource.
  template <class Tile>
  static constexpr bool is_of_lanes = requires(Tile& tile) {
    tile.lane_words(0, 0);
  };
  /// Whether rows of a tile are whole chunks, and 16 bytes of the tile can be written at once.
  template <class Tile>
  static constexpr bool takes_chunks = Tile::columns % code_chunk::size == 0 && requires(Tile& tile) {
    tile.chunk(0, 0);
  };
  /// Whether rows are whole chunks: see ChunkedSource. Then no chunk is in two blocks, and all lie at multiples of
  /// their size.
  TESSERA_FN constexpr bool has_whole_chunks() const { return column_count % code_chunk::size == 0; }

  /// The chunks of a tile, spread over the lanes' registers.
  template <class G, class Tile>
  requires(Tile::columns % code_chunk::size == 0) struct fetched {
    static constexpr int in_row = Tile::columns / code_chunk::size;  ///< chunks of a row of the tile
    static constexpr int count = Tile::rows * in_row;                ///< chunks of the tile
    static constexpr int a_lane = divide_up(count, G::size);         ///< chunks that a lane holds
    static constexpr bool is_regular = G::size % in_row == 0;        ///< a lane's chunks are below each other
    static_assert(is_regular || !is_of_lanes<Tile>);
    /// Every Group::size-th chunk of the tile.
    struct part {
      /// Codes of the lane's chunks.
      code_chunk chunks[a_lane];
    };
    per_lane<part, G> parts;    ///< the chunks of all lanes
    std::int64_t first_row;     ///< of the tile
    std::int64_t first_column;  ///< of the tile
    int rows_inside;            ///< rows of the tile that the matrix has
    int columns_inside;         ///< columns of the tile that the matrix has
    exponent_window window;     ///< of the stream

    /// Where a lane's chunk number `i` begins in the tile.
    TESSERA_FN static constexpr int row_of(int lane, int i) {
      return is_regular ? lane / in_row + i * (G::size / in_row) : (i * G::size + lane) / in_row;
    }
    /// The column of a lane's chunk number `i` in the tile.
    TESSERA_FN static constexpr int column_of(int lane, int i) {
      return (is_regular ? lane % in_row : (i * G::size + lane) % in_row) * code_chunk::size;
    }
    /// Whether a lane has so many chunks.
    TESSERA_FN static constexpr bool has(int lane, int i) { return count % G::size == 0 || i * G::size + lane < count; }
  };

  /// Starts to load the tile that begins at (first_row, first_column), which are not negative. The column is a multiple
  /// of a chunk's size. Where rows are not whole chunks, store() loads.
  template <class G, class Tile>
  TESSERA_FN void fetch(G const& group, fetched<G, Tile>& to, std::int64_t first_row, std::int64_t first_column) const {
    using shape = fetched<G, Tile>;
    to.first_row = first_row;
    to.first_column = first_column;
    to.window = *window;
    to.rows_inside = inside(row_count - first_row, Tile::rows);
    to.columns_inside = inside(column_count - first_column, Tile::columns);
    if (!has_whole_chunks()) {
      return;
    }
    if (to.rows_inside == 0 || to.columns_inside == 0) {
      for (int lane : group) {
        to.parts[lane] = {};
      }
      return;
    }
    std::uint32_t const in_row = chunks_of_row();
    std::uint32_t const origin =
        static_cast<std::uint32_t>(first_row) * in_row + static_cast<std::uint32_t>(first_column / code_chunk::size);
    for (int lane : group) {
      for (int i = 0; i < shape::a_lane; ++i) {
        // What is outside is replaced by something inside, so that no load has a branch of its own.
        auto const row = static_cast<unsigned>(min(shape::row_of(lane, i), to.rows_inside - 1));
        int const column = min(shape::column_of(lane, i), to.columns_inside - code_chunk::size);
        to.parts[lane].chunks[i] = chunk_at(origin + row * in_row + static_cast<unsigned>(column / code_chunk::size));
      }
    }
  }

  /// Waits for what was fetched and writes it to a tile of the type that it was fetched for; then sync the group.
  template <class G, class Tile>
  TESSERA_FN void store(G const& group, fetched<G, Tile> const& from, Tile& tile) const {
    if constexpr (!is_of_lanes<Tile>) {
      if (!has_whole_chunks()) {
        load_elements(group, tile, from.first_row, from.first_column);
        return;
      }
    }
    bool const is_whole = from.rows_inside == Tile::rows && from.columns_inside == Tile::columns;
    if (is_whole && from.window.is_contiguous()) {
      store_chunks<true>(group, from, tile);
    } else {
      store_chunks<false>(group, from, tile);
    }
  }

  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    if constexpr (takes_chunks<Tile>) {
      if (has_whole_chunks() && first_row >= 0 && first_column >= 0 && first_column % code_chunk::size == 0) {
        fetched<G, Tile> next;
        fetch(group, next, first_row, first_column);
        store(group, next, tile);
        group.sync();
        return;
      }
    }
    load_elements(group, tile, first_row, first_column);
    group.sync();
  }

  /// A weight that no code says.
  struct uncoded_weight {
    std::int64_t position;  ///< in the matrix, row by row
    bfloat16 value;         ///< the weight
  };
  /// How many weights of block number `which` no code says: its escapes, or all if it is not `coded`.
  TESSERA_FN int uncoded_in(std::int64_t which) const {
    opened_block const block = blocks[which];
    return block.is_coded() ? block.escapes() : static_cast<int>(weights_from(which << log2_block));
  }
  /// Number `i` of them, in the order of positions.
  TESSERA_FN uncoded_weight uncoded(std::int64_t which, int i) const {
    opened_block const block = blocks[which];
    std::int64_t const first = which << log2_block;
    if (!block.is_coded()) {
      return {first + i, element(first + i)};
    }
    std::uint32_t const escape = escapes_of(block, first)[i];
    std::int64_t const position = first + (escape & 0xffffU);
    return {position, weight_of(residuals[position], escape >> 16 & 0xffU)};
  }

 private:
  static constexpr int log2_chunk = 4;           ///< log2 of the weights of a chunk
  static constexpr int payload_unit = 16;        ///< bytes of an opened_block's position
  static constexpr int coded_granularity = 256;  ///< the last block has codes for a multiple of so many weights

  struct alignas(8) eight_bytes {
    std::uint32_t words[2];
  };
  struct alignas(16) sixteen_bytes {
    std::uint32_t words[4];
  };

  /// How many of `most` there are where `left` are left.
  TESSERA_FN static constexpr int inside(std::int64_t left, int most) {
    return left >= most ? most : left > 0 ? static_cast<int>(left) : 0;
  }
  /// The chunk number `which` of the matrix. Where codes say nothing, all are escapes. A stream has at most 2^35
  /// weights, so that chunks have 32-bit numbers.
  TESSERA_FN code_chunk chunk_at(std::uint32_t which) const {
    int const log2_chunks = log2_block - log2_chunk;
    opened_block const block = blocks[which >> log2_chunks];
    auto const residual = reinterpret_cast<sixteen_bytes const*>(residuals)[which];
    eight_bytes codes{{~0U, ~0U}};
    if (block.is_coded()) {
      codes = reinterpret_cast<eight_bytes const*>(payload_of(block))[which & ((1U << log2_chunks) - 1)];
    }
    return {{codes.words[0], codes.words[1]},
            {residual.words[0], residual.words[1], residual.words[2], residual.words[3]}};
  }
  TESSERA_FN constexpr std::uint32_t chunks_of_row() const {
    return static_cast<std::uint32_t>(column_count / code_chunk::size);
  }
  TESSERA_FN opened_block block_of(std::int64_t position) const { return blocks[position >> log2_block]; }
  TESSERA_FN std::uint8_t const* payload_of(opened_block block) const {
    return payload + std::uint64_t{block.position} * payload_unit;
  }
  TESSERA_FN constexpr std::uint32_t in_block(std::int64_t position) const {
    return static_cast<std::uint32_t>(position) & ((1U << log2_block) - 1);
  }

  /// Usual: the whole tile is inside of the matrix, and the window is contiguous.
  template <bool Usual, class G, class Tile>
  TESSERA_FN void store_chunks(G const& group, fetched<G, Tile> const& from, Tile& tile) const {
    using shape = fetched<G, Tile>;
    detail::exponents_of_codes<Usual> const exponents(from.window);
    std::int64_t const origin = from.first_row * column_count + from.first_column;
    for (int lane : group) {
      for (int i = 0; i < shape::a_lane; ++i) {
        if (!shape::has(lane, i)) {
          continue;
        }
        int const row = shape::row_of(lane, i);
        int const column = shape::column_of(lane, i);
        code_chunk const& chunk = from.parts[lane].chunks[i];
        std::uint32_t pairs[8];
        join_eight(group, chunk.codes[0], chunk.residuals, exponents, pairs);
        join_eight(group, chunk.codes[1], chunk.residuals + 2, exponents, pairs + 4);
        std::uint32_t special =
            exponent_window::escapes_among(chunk.codes[0]) | exponent_window::escapes_among(chunk.codes[1]) << 1;
        if constexpr (!Usual) {
          bool const is_inside = row < from.rows_inside && column < from.columns_inside;
          special = is_inside ? special : 0;
          for (std::uint32_t& pair : pairs) {
            pair = is_inside ? pair : 0;
          }
        }
        if (special != 0) {
          patch(special, origin + row * column_count + column, pairs);
        }
        store_pairs(pairs, i, row, column, tile);
      }
    }
  }
  /// Writes a lane's chunk number `i`, which begins at (row, column).
  template <class Tile>
  TESSERA_FN static void store_pairs(std::uint32_t const (&pairs)[8], int i, int row, int column, Tile& tile) {
    for (int part = 0; part < 2; ++part) {
      std::uint32_t const* const four = pairs + 4 * part;
      if constexpr (is_of_lanes<Tile>) {
        std::uint32_t(&to)[4] = tile.lane_words(i, part);
        for (int word = 0; word < 4; ++word) {
          to[word] = four[word];
        }
      } else {
        tile.chunk(row, column + part * tile_chunk<bfloat16>::size) =
            bit_cast<tile_chunk<bfloat16>>(sixteen_bytes{{four[0], four[1], four[2], four[3]}});
      }
    }
  }

  /// Joins eight codes and eight bytes to four pairs of weights: the high bytes of four weights, the low bytes, and
  /// then pairs of both.
  template <class G, class Exponents>
  TESSERA_FN static void join_eight(G const& group, std::uint32_t codes, std::uint32_t const* bytes,
                                    Exponents const& exponents_of, std::uint32_t* pairs) {
    std::uint32_t const even = codes & 0x0f0f0f0fU;
    std::uint32_t const odd = codes >> 4 & 0x0f0f0f0fU;
    for (int half = 0; half < 2; ++half) {
      std::uint32_t const exponents = exponents_of(permute_bytes(group, even, odd, half == 0 ? 0x5140U : 0x7362U));
      std::uint32_t const high = choose_bits(group, 0x80808080U, bytes[half], exponents >> 1);
      std::uint32_t const low = choose_bits(group, 0x7f7f7f7fU, bytes[half], exponents << 7);
      pairs[2 * half] = permute_bytes(group, low, high, 0x5140U);
      pairs[2 * half + 1] = permute_bytes(group, low, high, 0x7362U);
    }
  }

  /// Replaces the weights of a chunk whose codes are escapes, from that at position `first` of the matrix on. Bit
  /// 4 i + j of `special` is set for code i of word j. Registers are chosen by comparisons, so that they stay
  /// registers.
  TESSERA_FN void patch(std::uint32_t special, std::int64_t first, std::uint32_t (&pairs)[8]) const {
    for (; special != 0; special &= special - 1) {
      auto const bit = static_cast<unsigned>(log2_floor(special & (~special + 1)));
      unsigned const which = bit % 2 * 8 + bit / 4;
      unsigned const shift = 16 * (which % 2);
      std::uint32_t pair = 0;
      for (unsigned i = 0; i < 8; ++i) {
        pair = i == which / 2 ? pairs[i] : pair;
      }
      std::uint32_t const weight = searched(first + which, pair >> shift);
      pair = (pair & ~(0xffffU << shift)) | weight << shift;
      for (unsigned i = 0; i < 8; ++i) {
        pairs[i] = i == which / 2 ? pair : pairs[i];
      }
    }
  }

  /// The bits of the weight at a position, whose sign and mantissa are in `bits`: by its block, whatever that is.
  TESSERA_FN std::uint32_t searched(std::int64_t position, std::uint32_t bits) const {
    opened_block const block = block_of(position);
    if (block.kind() == block_kind::lost) {
      return 0;
    }
    std::uint8_t const* const codes = payload_of(block);
    std::uint32_t const within = in_block(position);
    std::uint32_t exponent = 0;
    if (block.kind() == block_kind::raw) {
      exponent = codes[within];
    } else {
      std::uint32_t const code = (codes[within / 2] >> (4 * (within % 2))) & 15U;
      exponent = escaped(block, position - within, within, window->exponent(code));
    }
    return (bits & 0x807fU) | exponent << 7;
  }
  /// The weights of the block that begins at a position: the last one may have fewer than the others.
  TESSERA_FN std::int64_t weights_from(std::int64_t first_of_block) const {
    return min(row_count * column_count - first_of_block, std::int64_t{1} << log2_block);
  }
  /// The list of a coded block's escapes: positions in the block, which ascend, and exponents.
  TESSERA_FN std::uint32_t const* escapes_of(opened_block block, std::int64_t first_of_block) const {
    return reinterpret_cast<std::uint32_t const*>(
        payload_of(block) + align_up(weights_from(first_of_block), std::int64_t{coded_granularity}) / 2);
  }
  /// The number of the first of `count` escapes whose position is not before `within`.
  TESSERA_FN static int first_escape(std::uint32_t const* list, int count, std::uint32_t within) {
    int begin = 0;
    int end = count;
    while (begin < end) {
      int const middle = (begin + end) / 2;
      bool const is_before = (list[middle] & 0xffffU) < within;
      begin = is_before ? middle + 1 : begin;
      end = is_before ? end : middle;
    }
    return begin;
  }
  /// The exponent in the list of a block's escapes; `otherwise` where it has none.
  TESSERA_FN std::uint32_t escaped(opened_block block, std::int64_t first_of_block, std::uint32_t within,
                                   std::uint32_t otherwise) const {
    std::uint32_t const* const list = escapes_of(block, first_of_block);
    int const at = first_escape(list, block.escapes(), within);
    return at < block.escapes() && (list[at] & 0xffffU) == within ? list[at] >> 16 & 0xffU : otherwise;
  }
  /// The weight of a byte of sign and mantissa and of an exponent.
  TESSERA_FN static bfloat16 weight_of(std::uint32_t byte, std::uint32_t exponent) {
    return bfloat16{static_cast<std::uint16_t>((byte & 0x80U) << 8 | exponent << 7 | (byte & 0x7fU))};
  }

  template <class G, class Tile>
  TESSERA_FN void load_elements(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    detail::load_along_rows(
        group, tile, *this, first_row, first_column,
        [&, this](std::int64_t row, std::int64_t column) { return element(row * column_count + column); });
  }
  TESSERA_FN bfloat16 element(std::int64_t position) const {
    std::uint32_t const byte = residuals[position];
    return bfloat16{static_cast<std::uint16_t>(searched(position, (byte & 0x80U) << 8 | (byte & 0x7fU)))};
  }
};

static_assert(TileSource<coded_weights>);

}  // namespace v0
}  // namespace tessera
