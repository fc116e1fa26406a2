// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dequantized`: the TileSource of a matrix of a Quantizer's codes, which are decoded on the way into the tile. So a
/// product of 8-bit weights and bf16 inputs needs the same program as one of bf16 weights.
///
///     using quantizer = symmetric_quantizer<8, 64>;                 // 64 columns share a scale
///     using source = dequantized<quantizer, bfloat16>;
///     source const weights{{}, codes, scales};                      // codes: rows x columns, scales: rows x groups
///     gemm_tiles<bfloat16, dense<bfloat16>, source, Epilogue> const program{{inputs}, weights, epilogue};
///
/// Codes of 4 bits take half of a byte where the quantizer says so (quantize/two_to_a_byte.hpp):
///
///     using packed = dequantized<two_to_a_byte<symmetric_quantizer<4, 64>>, bfloat16>;
///     packed const weights{{}, pairs, scales};                      // pairs: rows x columns / 2, of int4x2
///
/// Where groups have whole 16 bytes of codes, tiles with chunk() are loaded 16 bytes of codes at a time, in two steps:
/// fetch() has codes and parameters on their way to registers while the group does other work, and store() decodes them
/// into the tile.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/math.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/byte_as_float.hpp>
#include <tessera/tile/source/detail/load_elements.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/store_values.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

template <class Member>
struct class_of_member;
template <class C, class R, class... Arguments>
struct class_of_member<R (C::*)(Arguments...) const> {
  using type = C;
};

/// Whether a quantizer's decode_whole() is that of its decode(): both are of one class. A quantizer that derives from
/// another and has a decode() of its own inherits a decode_whole() that does something else.
template <class Q>
inline constexpr bool decodes_whole_codes = false;
template <class Q>
requires requires {
  &Q::decode;
  &Q::decode_whole;
}
inline constexpr bool decodes_whole_codes<Q> =
    std::is_same_v<typename class_of_member<decltype(&Q::decode)>::type,
                   typename class_of_member<decltype(&Q::decode_whole)>::type>;

}  // namespace detail

/// Value: the type to which decoded codes are rounded. A new group begins with each row; a quantizer for whole tensors
/// has its parameters at params(0, 0), or no memory for them where params_type is empty.
template <Quantizer Q, Scalar Value>
struct dequantized {
  using value_type = Value;
  /// Whether an element of `codes` holds two codes of a row, the first in the low bits. Rows are then of even length.
  static constexpr bool is_packed = std::is_same_v<stored_code<Q>, int4x2>;

  Q quantizer;                                        ///< the quantizer that made the codes
  matrix_view<stored_code<Q> const> codes;            ///< rows x columns, or x columns / 2 where they are packed
  matrix_view<typename Q::params_type const> params;  ///< rows x groups of a row

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("codes of the source", codes);
    use("parameters of codes", params);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return codes.extent(0); }
  TESSERA_FN constexpr std::int64_t columns() const { return codes.extent(1) * (is_packed ? 2 : 1); }
  /// Throws shape_error, in the name of `function`, where there are not as many parameters as codes need. Calls that
  /// take sources ask it.
  void check(char const* function, char const* what) const {
    if constexpr (!std::is_empty_v<typename Q::params_type>) {
      constexpr bool is_whole = Q::group == whole_tensor;
      std::int64_t const needed = is_whole ? 1 : rows();
      std::int64_t const groups = is_whole ? 1 : divide_up(columns(), std::int64_t{max(Q::group, 1)});
      tessera::check<shape_error>(params.extent(0) == needed && params.extent(1) == groups, function,
                                  ": the parameters of the codes of the ", what, " are ", params.extent(0), " x ",
                                  params.extent(1), " but must be ", needed, " x ", groups);
    }
  }

  /// 16 bytes of codes of a row.
  struct alignas(16) code_chunk {
    static constexpr int size = is_packed ? 32 : 16;  ///< codes of a chunk
    std::uint32_t words[4];                           ///< the codes, the first in the lowest bits
  };

  /// Whether a chunk of codes has one set of parameters and fills whole chunks of a tile.
  static constexpr bool has_chunks = sizeof(stored_code<Q>) == 1 && 16 % sizeof(Value) == 0 &&
                                     (Q::group == whole_tensor || Q::group % code_chunk::size == 0);

  /// Whether rows of a tile have whole chunks of codes, and 16 bytes of the tile can be written at once. Not asked by
  /// naming `fetched` in a requires-expression, which nvcc 13.0 takes for ill-formed in the pass for the device.
  template <class Tile>
  static constexpr bool takes_chunks = has_chunks&& Tile::columns % code_chunk::size == 0 && requires(Tile& tile) {
    tile.chunk(0, 0);
  };

  /// Whether a tile takes what lanes hold instead of elements: see ChunkedSource.
  template <class Tile>
  static constexpr bool is_of_lanes = requires(Tile& tile) {
    tile.lane_chunk(0, 0);
  };

  /// Whether rows are whole chunks of codes at multiples of 16 bytes: see ChunkedSource.
  TESSERA_FN bool has_whole_chunks() const {
    return has_chunks && columns() % code_chunk::size == 0 && has_aligned_rows();
  }

  /// The codes of a tile and their parameters, spread over the lanes' registers.
  template <class G, class Tile>
  requires(has_chunks&& Tile::columns % code_chunk::size == 0) struct fetched {
    static constexpr int lanes = G::size;
    static constexpr int in_row = Tile::columns / code_chunk::size;  ///< chunks of a row of the tile
    static constexpr int count = Tile::rows * in_row;                ///< chunks of the tile
    static constexpr int a_lane = divide_up(count, G::size);         ///< chunks that a lane holds
    /// Every Group::size-th chunk of the tile.
    struct part {
      code_chunk chunks[a_lane];               ///< the codes
      typename Q::params_type params[a_lane];  ///< the parameters of each chunk's group
    };
    per_lane<part, G> parts;  ///< the chunks of all lanes
    int rows_inside;          ///< rows of the tile that the matrix has
    int columns_inside;       ///< columns of the tile that the matrix has
  };

  /// Starts to load the tile that begins at (first_row, first_column), which are not negative. The column is a multiple
  /// of a chunk's size.
  template <class G, class Tile>
  TESSERA_FN void fetch(G const& group, fetched<G, Tile>& to, std::int64_t first_row, std::int64_t first_column) const {
    to.rows_inside = inside(rows() - first_row, Tile::rows);
    to.columns_inside = inside(columns() - first_column, Tile::columns);
    if constexpr (!is_of_lanes<Tile>) {
      if (G::size % fetched<G, Tile>::in_row != 0 || !has_aligned_rows() || to.columns_inside % code_chunk::size != 0) {
        for (int lane : group) {
          to.parts[lane] = gather<fetched<G, Tile>>(lane, first_row, first_column);
        }
        return;
      }
    }
    static_assert(!is_of_lanes<Tile> || G::size % fetched<G, Tile>::in_row == 0,
                  "tessera: a lane's chunks are below each other in a tile that takes what lanes hold");
    fetch_chunks(group, to, first_row, first_column);
  }

  /// Waits for what was fetched and writes it to a tile of the type that it was fetched for; then sync the group.
  template <class G, class Tile>
  TESSERA_FN void store(G const& group, fetched<G, Tile> const& from, Tile& tile) const {
    using shape = fetched<G, Tile>;
    if constexpr (!is_of_lanes<Tile>) {
      if (from.columns_inside % code_chunk::size != 0) {
        for (int lane : group) {
          store_edge<shape>(from.parts[lane], lane, from.rows_inside, from.columns_inside, tile);
        }
        return;
      }
    }
    for (int lane : group) {
      for (int i = 0; i < shape::a_lane; ++i) {
        int const which = i * G::size + lane;
        if (shape::count % G::size == 0 || which < shape::count) {
          int const row = which / shape::in_row;
          int const column = which % shape::in_row * code_chunk::size;
          bool const is_inside = row < from.rows_inside && column < from.columns_inside;
          for (int part = 0; part < code_chunk::size / tile_chunk<Value>::size; ++part) {
            store_part(group, from.parts[lane].chunks[i], from.parts[lane].params[i], part, is_inside,
                       chunk_of(tile, i, part, row, column));
          }
        }
      }
    }
  }

  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    if constexpr (takes_chunks<Tile>) {
      if (first_row >= 0 && first_column >= 0 && first_column % code_chunk::size == 0) {
        fetched<G, Tile> next;
        fetch(group, next, first_row, first_column);
        store(group, next, tile);
        group.sync();
        return;
      }
    }
    detail::load_along_rows(group, tile, *this, first_row, first_column,
                            [&, this](std::int64_t row, std::int64_t column) { return value(row, column); });
    group.sync();
  }

 private:
  TESSERA_FN constexpr Value value(std::int64_t row, std::int64_t column) const {
    return decoded(code_in(codes(row, is_packed ? column / 2 : column), column % 2 != 0), params_of(row, column));
  }
  TESSERA_FN constexpr Value decoded(typename Q::code_type code, typename Q::params_type const& of_group) const {
    return tessera::store<Value>(quantizer.decode(code, of_group));
  }
  TESSERA_FN constexpr typename Q::params_type params_of(std::int64_t row, std::int64_t column) const {
    if constexpr (std::is_empty_v<typename Q::params_type>) {
      return {};  // there is no memory to read it from
    } else if constexpr (Q::group == whole_tensor) {
      return params(0, 0);
    } else {
      return params(row, column / Q::group);
    }
  }
  /// How many of `most` there are where `left` are left.
  TESSERA_FN static constexpr int inside(std::int64_t left, int most) {
    return left >= most ? most : left > 0 ? static_cast<int>(left) : 0;
  }
  /// The code that is stored alone, or as the first or the second of a pair.
  TESSERA_FN static constexpr typename Q::code_type code_in(stored_code<Q> stored, bool second) {
    if constexpr (is_packed) {
      int const code = second ? high(stored) : low(stored);
      return static_cast<typename Q::code_type>(std::is_unsigned_v<typename Q::code_type> ? code & 15 : code);
    } else {
      return stored;
    }
  }

  /// Code number i of a chunk.
  TESSERA_FN static constexpr typename Q::code_type code_of(code_chunk const& chunk, int i) {
    if constexpr (is_packed) {
      std::uint32_t const moved = chunk.words[i / 8] << (28 - 4 * (i % 8));
      return static_cast<typename Q::code_type>(
          std::is_unsigned_v<typename Q::code_type> ? static_cast<int>(moved >> 28) : static_cast<int>(moved) >> 28);
    } else {
      return bit_cast<typename Q::code_type>(static_cast<std::uint8_t>(chunk.words[i / 4] >> (8 * (i % 4))));
    }
  }

  /// Whether chunks can be read at once: they lie at multiples of 16 bytes.
  TESSERA_FN bool has_aligned_rows() const {
    return codes.stride(1) == 1 && codes.stride(0) % 16 == 0 && reinterpret_cast<std::uintptr_t>(codes.data) % 16 == 0;
  }

  template <class G, class Tile>
  TESSERA_FN void fetch_chunks(G const& group, fetched<G, Tile>& to, std::int64_t first_row,
                               std::int64_t first_column) const {
    using shape = fetched<G, Tile>;
    std::int64_t const params_stride = Q::group == whole_tensor ? 0 : params.stride(0);
    for (int lane : group) {
      if constexpr (G::size % shape::in_row == 0) {  // a lane's chunks are below each other
        constexpr int rows_apart = G::size / shape::in_row;
        int const row = lane / shape::in_row;
        int const in_tile = lane % shape::in_row * code_chunk::size;
        std::int64_t const column = first_column + in_tile;
        auto const* codes_from = codes.data + (first_row + row) * codes.stride(0) + column / (is_packed ? 2 : 1);
        auto const* params_from = params.data;
        if constexpr (Q::group != whole_tensor) {
          params_from += (first_row + row) * params_stride + column / Q::group * params.stride(1);
        }
        int const rows_inside = in_tile < to.columns_inside ? to.rows_inside : 0;
        for (int i = 0; i < shape::a_lane; ++i) {
          bool const is_inside = row + i * rows_apart < rows_inside;
          to.parts[lane].chunks[i] = is_inside ? *reinterpret_cast<code_chunk const*>(codes_from) : code_chunk{};
          if constexpr (!std::is_empty_v<typename Q::params_type>) {
            to.parts[lane].params[i] = is_inside ? *params_from : typename Q::params_type{};
          }
          codes_from += rows_apart * codes.stride(0);
          params_from += rows_apart * params_stride;
        }
      }
    }
  }

  /// Reads the chunks of a lane code by code. Not inline: otherwise the loops are too long to be unrolled, and chunks
  /// are kept in memory instead of registers.
  template <class Shape>
  [[gnu::noinline]] TESSERA_FN typename Shape::part gather(int lane, std::int64_t first_row,
                                                           std::int64_t first_column) const {
    constexpr int in_element = is_packed ? 2 : 1;
    typename Shape::part gathered{};
    for (int i = 0; i < Shape::a_lane; ++i) {
      int const which = i * Shape::lanes + lane;
      std::int64_t const row = first_row + which / Shape::in_row;
      std::int64_t const column = first_column + which % Shape::in_row * code_chunk::size;
      if (which < Shape::count && row < rows() && column < columns()) {
        gathered.params[i] = params_of(row, column);
        for (int k = 0; k < 16 && column / in_element + k < codes.extent(1); ++k) {
          auto const byte = bit_cast<std::uint8_t>(codes(row, column / in_element + k));
          gathered.chunks[i].words[k / 4] |= std::uint32_t{byte} << (8 * (k % 4));
        }
      }
    }
    return gathered;
  }

  /// Where part number `part` of a lane's chunk number `i` goes, which begins at (row, column).
  template <class Tile>
  TESSERA_FN static tile_chunk<Value>& chunk_of(Tile& tile, int i, int part, int row, int column) {
    if constexpr (is_of_lanes<Tile>) {
      return tile.lane_chunk(i, part);
    } else {
      return tile.chunk(row, column + part * tile_chunk<Value>::size);
    }
  }
  /// Decodes a part of a chunk into a tile, or writes zeros where it is outside of the matrix.
  template <class G>
  TESSERA_FN void store_part(G const& group, code_chunk const& chunk, typename Q::params_type const& of_group, int part,
                             bool is_inside, tile_chunk<Value>& to) const {
    constexpr int size = tile_chunk<Value>::size;
    float values[size];
    for (int i = 0; i < size; ++i) {
      values[i] = decoded_code(group, chunk, part * size + i, of_group);
    }
    store_values<Value>(group, values, zeros_are_zero || is_inside, to);
  }
  /// Whether the codes and parameters that stand for what is outside of the matrix, which are zeros, decode to zero.
  static constexpr bool zeros_are_zero = std::is_empty_v<Q> && requires {
    typename std::enable_if_t<(Q{}.decode(typename Q::code_type{}, typename Q::params_type{}) == 0.0F), int>;
  };
  /// Whether codes are whole numbers that need not be converted one by one.
  static constexpr bool has_whole_codes = std::is_integral_v<typename Q::code_type> && detail::decodes_whole_codes<Q>;
  /// Code number i of a chunk, decoded.
  template <class G>
  TESSERA_FN float decoded_code(G const& group, code_chunk const& chunk, int i,
                                typename Q::params_type const& of_group) const {
    if constexpr (has_whole_codes) {
      constexpr bool is_signed = std::is_signed_v<typename Q::code_type>;
      constexpr float offset = is_signed ? (is_packed ? 8.0F : 128.0F) : 0.0F;  // makes signed codes unsigned
      std::uint32_t const word = chunk.words[is_packed ? i / 8 : i / 4];
      std::uint32_t const shifted_codes = is_signed ? word ^ (is_packed ? 0x88888888U : 0x80808080U) : word;
      std::uint32_t const of_parity = i % 2 != 0 ? shifted_codes >> 4 : shifted_codes;
      std::uint32_t const bytes = is_packed ? of_parity & 0x0f0f0f0fU : shifted_codes;
      float const shifted = byte_as_float(group, bytes, is_packed ? i % 8 / 2 : i % 4);
      return quantizer.decode_whole(shifted - (8388608.0F + offset), of_group);
    } else {
      return quantizer.decode(code_of(chunk, i), of_group);
    }
  }
  /// Decodes the chunks of a lane code by code, where rows of the matrix end inside of a chunk. Not inline, and by
  /// value: it reads codes by number, for which they would be kept in memory everywhere.
  template <class Shape, class Tile>
  [[gnu::noinline]] TESSERA_FN void store_edge(typename Shape::part from, int lane, int rows_inside, int columns_inside,
                                               Tile& tile) const {
    for (int i = 0; i < Shape::a_lane; ++i) {
      int const which = i * Shape::lanes + lane;
      int const row = which / Shape::in_row;
      for (int k = 0; k < code_chunk::size && which < Shape::count; ++k) {
        int const column = which % Shape::in_row * code_chunk::size + k;
        bool const is_inside = row < rows_inside && column < columns_inside;
        tile(row, column) = is_inside ? decoded(code_of(from.chunks[i], k), from.params[i]) : Value{};
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
