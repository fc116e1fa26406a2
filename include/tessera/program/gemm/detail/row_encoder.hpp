// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `row_encoder`: makes codes of values of a row by a Quantizer, for the programs that quantize a matrix in memory.
/// Where values and codes lie at multiples of 16 bytes, 16 bytes are read and written at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Codes of values of a row.
template <Quantizer Q, Scalar T>
struct row_encoder {
  /// Codes in an element of the matrix of codes.
  static constexpr int in_element = std::is_same_v<stored_code<Q>, int4x2> ? 2 : 1;
  static constexpr int elements = row_chunks<stored_code<Q>>::size;  ///< of a chunk of codes
  static constexpr int columns = elements * in_element;              ///< values whose codes make a chunk
  static constexpr int size = row_chunks<T const>::size;             ///< values of a chunk of them
  static constexpr int chunks = divide_up(columns, size);            ///< chunks of `columns` values

  /// Values whose codes make a chunk.
  struct part {
    tile_chunk<T> chunks[row_encoder::chunks];  ///< the values in their order
  };

  Q quantizer;                        ///< makes the codes
  matrix_view<T const> values;        ///< rows x columns
  matrix_view<stored_code<Q>> codes;  ///< rows x columns, or x half of the columns where they are packed

  /// The values of the columns from `first`, a multiple of `in_element`, to `end`; those beyond have any value.
  TESSERA_FN part load(std::int64_t row, std::int64_t first, std::int64_t end) const {
    row_chunks<T const> const from{values};
    part read{};
    if (end - first >= columns && from.is_whole(first)) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        read.chunks[chunk] = from.moved(from.whole(row, first) + chunk);
      }
      return read;
    }
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (first + chunk * size < end) {
        read.chunks[chunk] = from.load(row, first + chunk * size);
      }
    }
    return read;
  }
  /// Pushes the first `count` values.
  template <class R>
  TESSERA_FN static void push(R const& reducer, typename R::state_type& range, part const& read, std::int64_t count) {
    if (count >= columns) {
      for (int i = 0; i < columns; ++i) {
        reducer.push(range, value(read, i));
      }
      return;
    }
    for (int i = 0; i < columns; ++i) {
      if (i < count) {
        reducer.push(range, value(read, i));
      }
    }
  }
  /// Writes the codes of the columns from `first`, a multiple of `in_element`, to `end`, at most `columns` of them.
  TESSERA_FN void store(std::int64_t row, std::int64_t first, std::int64_t end,
                        tile_chunk<stored_code<Q>> const& encoded) const {
    if (end - first >= columns) {
      row_chunks<stored_code<Q>>{codes}.store(row, first / in_element, encoded);
      return;
    }
    for (int i = 0; i < elements; ++i) {
      if (first + i * in_element < end) {
        codes(row, first / in_element + i) = encoded.values[i];
      }
    }
  }
  /// The codes of `columns` values.
  TESSERA_FN tile_chunk<stored_code<Q>> encode(part const& from, typename Q::params_type const& params) const {
    tile_chunk<stored_code<Q>> encoded{};
    for (int i = 0; i < columns; ++i) {
      set_code(encoded, i, quantizer.encode(value(from, i), params));
    }
    return encoded;
  }

 private:
  TESSERA_FN static constexpr float value(part const& from, int i) {
    return static_cast<float>(tessera::load(from.chunks[i / size].values[i % size]));
  }
  TESSERA_FN static constexpr void set_code(tile_chunk<stored_code<Q>>& chunk, int i, typename Q::code_type code) {
    if constexpr (in_element == 2) {
      auto& pair = chunk.values[i / 2];
      pair.bits = static_cast<std::uint8_t>(pair.bits | ((static_cast<int>(code) & 15) << (i % 2 * 4)));
    } else {
      chunk.values[i] = code;
    }
  }
};

}  // namespace v0
}  // namespace tessera
