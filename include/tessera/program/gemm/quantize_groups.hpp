// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs that make codes of a matrix in memory by any Quantizer:
///
///     quantize_groups     parameters and codes of groups at once, values read once
///     fit_groups          the parameters of larger groups, a warp for each
///     fit_tensor          the parameters of a whole tensor, from the ranges of its rows
///     encode_chunks       codes by parameters that are there
///
/// Where values and codes lie at multiples of 16 bytes, lanes read and write 16 bytes at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/gemm/reduce_rows.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
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

/// Fits the parameters of groups of neighbouring columns and encodes them. Where groups have whole chunks of codes and
/// 128 lanes have whole groups, each lane has a chunk and the lanes of a group share what they found of its range.
/// Elsewhere a lane does all of a group.
template <Quantizer Q, Scalar T>
requires(Q::group != whole_tensor) struct quantize_groups {
  static constexpr int lanes = 128;
  /// With 5 blocks, schedulers of an H100 find nothing to issue for a third of the time; with 8, pairs of codes spill.
  static constexpr int blocks_per_multiprocessor = row_encoder<Q, T>::in_element == 2 ? 6 : 8;
  static constexpr int part_columns = row_encoder<Q, T>::columns;  ///< columns whose codes make a chunk
  static constexpr int sharing_lanes = Q::group % part_columns == 0 ? Q::group / part_columns : 0;  ///< of a group
  /// Whether lanes share groups.
  static constexpr bool shares = sharing_lanes > 0 && lanes % (sharing_lanes > 0 ? sharing_lanes : 1) == 0 &&
                                 std::is_trivially_default_constructible_v<range_state_t<Q>>;

  /// What lanes found of ranges.
  struct shared_ranges {
    range_state_t<Q> of[lanes];  ///< the range of each lane's values
  };
  struct no_ranges {};
  using scratch_type = std::conditional_t<shares, shared_ranges, no_ranges>;

  row_encoder<Q, T> encoder;                    ///< the values, and where their codes go
  matrix_view<typename Q::params_type> params;  ///< rows x groups of a row

  TESSERA_FN constexpr std::int64_t groups() const {
    return shares ? params.extent(0) * tiles_in_row()
                  : divide_up(params.extent(0) * params.extent(1), std::int64_t{lanes});
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    if constexpr (shares) {
      quantize_together(group, which / tiles_in_row(), which % tiles_in_row() * lanes * part_columns, scratch);
    } else {
      for (int lane : group) {
        std::int64_t const at = which * lanes + lane;
        if (at < params.extent(0) * params.extent(1)) {
          quantize(at / params.extent(1), at % params.extent(1));
        }
      }
    }
  }

 private:
  TESSERA_FN constexpr std::int64_t tiles_in_row() const {
    return divide_up(encoder.values.extent(1), std::int64_t{lanes * part_columns});
  }

  /// Quantizes the groups of a row from a column on.
  template <Group G>
  TESSERA_FN void quantize_together(G const& group, std::int64_t row, std::int64_t first, scratch_type& scratch) const {
    std::int64_t const end = encoder.values.extent(1);
    auto const reducer = encoder.quantizer.range();
    per_lane<typename row_encoder<Q, T>::part, G> parts;
    group.sync();  // all lanes have read the ranges of a tile before
    for (int lane : group) {
      std::int64_t const column = first + lane * part_columns;
      auto range = reducer.identity();
      if (column < end) {
        parts[lane] = encoder.load(row, column, end);
        encoder.push(reducer, range, parts[lane], end - column);
      }
      scratch.of[lane] = range;
    }
    group.sync();
    for (int lane : group) {
      std::int64_t const column = first + lane * part_columns;
      if (column < end) {
        int const first_lane = lane / sharing_lanes * sharing_lanes;
        auto range = scratch.of[first_lane];
        for (int i = 1; i < sharing_lanes; ++i) {
          reducer.merge(range, scratch.of[first_lane + i]);
        }
        auto const fitted = encoder.quantizer.fit(range);
        if (lane == first_lane) {
          params(row, column / Q::group) = fitted;
        }
        encoder.store(row, column, end, encoder.encode(parts[lane], fitted));
      }
    }
  }

  TESSERA_FN void quantize(std::int64_t row, std::int64_t which) const {
    std::int64_t const first = which * Q::group;
    std::int64_t const end = min(first + Q::group, encoder.values.extent(1));
    auto const reducer = encoder.quantizer.range();
    auto range = reducer.identity();
    for (std::int64_t column = first; column < end; column += part_columns) {
      encoder.push(reducer, range, encoder.load(row, column, end), end - column);
    }
    auto const fitted = encoder.quantizer.fit(range);
    params(row, which) = fitted;
    for (std::int64_t column = first; column < end; column += part_columns) {
      encoder.store(row, column, end, encoder.encode(encoder.load(row, column, end), fitted));
    }
  }
};

/// Fits the parameters of groups of neighbouring columns, a warp for each group.
template <Quantizer Q, Scalar T>
requires(Q::group != whole_tensor) struct fit_groups {
  static constexpr int lanes = lanes_in_a_warp;
  struct scratch_type {};

  Q quantizer;                                  ///< makes the codes
  matrix_view<T const> values;                  ///< rows x columns
  matrix_view<typename Q::params_type> params;  ///< rows x groups of a row

  TESSERA_FN constexpr std::int64_t groups() const { return params.extent(0) * params.extent(1); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    row_chunks<T const> const rows{values};
    std::int64_t const row = which / params.extent(1);
    std::int64_t const first = which % params.extent(1) * Q::group;
    std::int64_t const end = min(first + Q::group, values.extent(1));
    auto const reducer = quantizer.range();
    per_lane<range_state_t<Q>, G> ranges;
    for (int lane : group) {
      ranges[lane] = reducer.identity();
      for (std::int64_t column = first + lane * rows.size; column < end; column += lanes * rows.size) {
        auto const chunk = rows.load(row, column);
        for (int i = 0; i < rows.size; ++i) {
          if (column + i < end) {
            reducer.push(ranges[lane], static_cast<float>(load(chunk.values[i])));
          }
        }
      }
    }
    auto const range = reduce(group, ranges, detail::merging<range_reducer_t<Q>>{reducer});
    for (int lane : group) {
      if (is_first(lane)) {
        params(row, which % params.extent(1)) = quantizer.fit(range);
      }
    }
  }
};

/// Fits the parameters of a whole tensor to the ranges of its rows, or of parts of them. One warp.
template <Quantizer Q>
struct fit_tensor {
  static constexpr int lanes = lanes_in_a_warp;
  struct scratch_type {};

  Q quantizer;                                  ///< makes the codes
  array_view<range_state_t<Q> const> ranges;    ///< the ranges of all parts
  matrix_view<typename Q::params_type> params;  ///< 1 x 1

  TESSERA_FN constexpr std::int64_t groups() const { return 1; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    auto const reducer = quantizer.range();
    per_lane<range_state_t<Q>, G> merged;
    for (int lane : group) {
      merged[lane] = reducer.identity();
      for (std::int64_t i = lane; i < ranges.size(); i += lanes) {
        reducer.merge(merged[lane], ranges[i]);
      }
    }
    auto const range = reduce(group, merged, detail::merging<range_reducer_t<Q>>{reducer});
    for (int lane : group) {
      if (is_first(lane)) {
        params(0, 0) = quantizer.fit(range);
      }
    }
  }
};

/// Encodes by parameters that are there. A lane encodes up to 4 chunks of a row.
template <Quantizer Q, Scalar T>
struct encode_chunks {
  static constexpr int lanes = 128;
  struct scratch_type {};
  static constexpr int part_columns = row_encoder<Q, T>::columns;  ///< columns whose codes make a chunk
  static constexpr int tile_columns = 4 * lanes * part_columns;    ///< columns of a tile, which has one row

  row_encoder<Q, T> encoder;                          ///< the values, and where their codes go
  matrix_view<typename Q::params_type const> params;  ///< rows x groups of a row, or 1 x 1 for a whole tensor

  TESSERA_FN constexpr std::int64_t groups() const { return encoder.values.extent(0) * tiles_in_row(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const row = which / tiles_in_row();
    std::int64_t const first = which % tiles_in_row() * tile_columns;
    std::int64_t const end = min(first + tile_columns, encoder.values.extent(1));
    for (int lane : group) {
      for (std::int64_t column = first + lane * part_columns; column < end; column += lanes * part_columns) {
        encode(row, column, min(column + part_columns, end));
      }
    }
  }

 private:
  TESSERA_FN constexpr std::int64_t tiles_in_row() const {
    return divide_up(encoder.values.extent(1), std::int64_t{tile_columns});
  }
  /// Encodes a chunk, in parts where groups end inside of it.
  TESSERA_FN void encode(std::int64_t row, std::int64_t first, std::int64_t end) const {
    if constexpr (std::is_empty_v<typename Q::params_type>) {
      encode_part(row, first, end, {});
    } else if constexpr (Q::group == whole_tensor) {
      encode_part(row, first, end, params(0, 0));
    } else if constexpr (Q::group % part_columns == 0) {
      encode_part(row, first, end, params(row, first / Q::group));
    } else {
      while (first < end) {
        std::int64_t const group_end = min((first / Q::group + 1) * Q::group, end);
        encode_part(row, first, group_end, params(row, first / Q::group));
        first = group_end;
      }
    }
  }
  TESSERA_FN void encode_part(std::int64_t row, std::int64_t first, std::int64_t end,
                              typename Q::params_type const& of_group) const {
    encoder.store(row, first, end, encoder.encode(encoder.load(row, first, end), of_group));
  }
};

}  // namespace v0
}  // namespace tessera
