// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `reduce_rows`: the state of any Reducer for each row of a matrix in memory, in pieces of 8192 columns; and
/// `merge_row_pieces`, which merges the pieces of longer rows. A warp reduces a piece: its lanes take chunks of 16
/// bytes in turns, and merge their states. The order depends on the extents and on the type of the elements alone.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/reducer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/reduce/row_fold.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Columns of a piece of a row.
inline constexpr std::int64_t row_piece_columns = 8192;

/// How many pieces the rows of a matrix have: one where there are no columns.
[[nodiscard]] TESSERA_FN constexpr std::int64_t row_pieces(std::int64_t columns) {
  return max(divide_up(columns, row_piece_columns), std::int64_t{1});
}

namespace detail {

/// How a Reducer merges, for a group's reduce().
template <Reducer R>
struct merging {
  R const& reducer;
  TESSERA_FN constexpr typename R::state_type operator()(typename R::state_type into,
                                                         typename R::state_type const& other) const {
    reducer.merge(into, other);
    return into;
  }
};

/// Pushes the element of a column: its value, or its value and its column.
template <Reducer R>
TESSERA_FN constexpr void push_element(R const& reducer, typename R::state_type& state, float value,
                                       std::int64_t column) {
  if constexpr (std::is_same_v<typename R::input_type, indexed_value<float>>) {
    reducer.push(state, {value, static_cast<std::int32_t>(column)});
  } else {
    reducer.push(state, value);
  }
}

}  // namespace detail

/// What is done with pieces where each is a row.
template <class Finish>
struct finish_whole_rows {
  Finish finish;  ///< a RowFinish: a row of a matrix is its own token
  /// Gives the state of a row to `finish`.
  template <class State>
  TESSERA_FN void operator()(std::int64_t row, std::int64_t, State const& state) const {
    finish(row, row, state);
  }
};

/// Writes the states of pieces to memory.
template <class State>
struct keep_pieces {
  array_view<State> states;  ///< rows x pieces
  std::int64_t pieces;       ///< of a row
  /// Writes the state of a piece.
  TESSERA_FN void operator()(std::int64_t row, std::int64_t piece, State const& state) const {
    states[row * pieces + piece] = state;
  }
};

/// Gives the state of each piece of each row to `finish`, with the number of its row and of the piece.
template <Reducer R, Scalar T, class Finish>
struct reduce_rows {
  static constexpr int lanes = lanes_in_a_warp;
  struct scratch_type {};
  static constexpr int in_flight = 4;  ///< chunks that a lane loads before it pushes the first

  R reducer;
  matrix_view<T const> values;  ///< rows x columns, of any strides
  Finish finish;                ///< finish(row, piece, state)

  TESSERA_FN constexpr std::int64_t groups() const { return values.extent(0) * row_pieces(values.extent(1)); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const pieces = row_pieces(values.extent(1));
    std::int64_t const row = which / pieces;
    std::int64_t const first = which % pieces * row_piece_columns;
    std::int64_t const end = min(first + row_piece_columns, values.extent(1));
    per_lane<typename R::state_type, G> states;
    for (int lane : group) {
      states[lane] = reducer.identity();
      push_piece(states[lane], row, first + lane * size, end);
    }
    auto const total = reduce(group, states, detail::merging<R>{reducer});
    for (int lane : group) {
      if (is_first(lane)) {
        finish(row, which % pieces, total);
      }
    }
  }

 private:
  static constexpr int apart = lanes * row_chunks<T const>::size;  ///< columns from a lane's chunk to its next one

  static constexpr int size = row_chunks<T const>::size;

  /// Takes a lane's chunks from a column on, as far as there are any.
  TESSERA_FN void push_piece(typename R::state_type& state, std::int64_t row, std::int64_t column,
                             std::int64_t end) const {
    row_chunks<T const> const rows{values};
    if (rows.is_aligned() && column % size == 0) {
      for (; column + (in_flight - 1) * apart + size <= end; column += in_flight * apart) {
        push_whole<in_flight>(state, rows.whole(row, column), column);
      }
      for (; column + size <= end; column += apart) {
        push_whole<1>(state, rows.whole(row, column), column);
      }
    }
    for (; column < end; column += apart) {
      tile_chunk<T> const chunks[1] = {rows.load(row, column)};
      take<1, false>(state, chunks, column, end);
    }
  }
  template <int Chunks>
  TESSERA_FN void push_whole(typename R::state_type& state, tile_chunk<T> const* from, std::int64_t column) const {
    tile_chunk<T> chunks[Chunks];
    for (int i = 0; i < Chunks; ++i) {
      chunks[i] = row_chunks<T const>::moved(from + i * lanes);
    }
    take<Chunks, true>(state, chunks, column, 0);
  }

  /// Takes the values of chunks, all of them if they are `Whole`, else those of columns below `end`. If the Reducer has
  /// a fold, it takes them at once, relative to the largest of them.
  template <int Chunks, bool Whole>
  TESSERA_FN void take(typename R::state_type& state, tile_chunk<T> const (&chunks)[Chunks], std::int64_t column,
                       std::int64_t end) const {
    if constexpr (!row_fold<R>::is_pushed && std::is_empty_v<R>) {
      fold<Chunks, Whole>(state, chunks, column, end);
    } else {
      for (int i = 0; i < Chunks * size; ++i) {
        std::int64_t const at = column + offset(i);
        if (Whole || at < end) {
          detail::push_element(reducer, state, static_cast<float>(load(chunks[i / size].values[i % size])), at);
        }
      }
    }
  }
  template <int Chunks, bool Whole>
  TESSERA_FN void fold(typename R::state_type& state, tile_chunk<T> const (&chunks)[Chunks], std::int64_t column,
                       std::int64_t end) const {
    using fold = row_fold<R>;
    constexpr float log2_e = 1.442695041F;
    float found[Chunks * size];
    float largest = -infinity;
    for (int i = 0; i < Chunks * size; ++i) {
      bool const is_there = Whole || column + offset(i) < end;
      found[i] = is_there ? static_cast<float>(load(chunks[i / size].values[i % size])) : -infinity;
      largest = maximum(largest, found[i]);
    }
    bool const is_far = fold::uses_exponentials && is_far_row(largest, log2_e);
    float const reference = reference_of_row(largest, log2_e);
    float raw = 0.0F;
    typename fold::part part{};
    for (int i = 0; i < Chunks * size; ++i) {
      row_value value{found[i], largest, 0.0F, 0.0F, offset(i), Whole || column + offset(i) < end};
      if constexpr (fold::uses_exponentials) {
        value.exponent = is_far ? far_exponent(found[i], largest, log2_e) : multiply_add(found[i], log2_e, -reference);
        value.exponential = exp2(value.exponent);
        raw += value.exponential;
      }
      fold::take(part, value);
    }
    std::int64_t const behind = Whole ? column + offset(Chunks * size - 1) + 1 : end;
    fold::settle(part, {static_cast<std::int32_t>(column), static_cast<std::int32_t>(behind), 1.0F});
    auto total = state;
    fold::add(total, fold::finish(part, facts_of_row(largest, 1.0F, raw, is_far, power_of_two{})), power_of_two{});
    fold::keep(state, total);
  }

  /// 2 to a power.
  struct power_of_two {
    TESSERA_FN float operator()(float exponent) const { return exp2(exponent); }
  };
  /// The columns from a lane's first value to its value number i.
  TESSERA_FN static constexpr std::int32_t offset(int i) { return i / size * apart + i % size; }
};

/// Merges the states of the pieces of each row, from first to last, and gives the state of the row to `finish`.
template <Reducer R, RowFinish<typename R::state_type> Finish>
struct merge_row_pieces {
  static constexpr int lanes = lanes_in_a_warp;
  struct scratch_type {};

  R reducer;
  array_view<typename R::state_type const> states;  ///< rows x pieces
  std::int64_t rows;                                ///< of the matrix
  Finish finish;                                    ///< finish(row, row, state): a row of a matrix is its own token

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(rows, std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, rows, [&, this](std::int64_t row) {
      std::int64_t const pieces = states.size() / rows;
      auto state = states[row * pieces];
      for (std::int64_t piece = 1; piece < pieces; ++piece) {
        reducer.merge(state, states[row * pieces + piece]);
      }
      finish(row, row, state);
    });
  }
};

}  // namespace v0
}  // namespace tessera
