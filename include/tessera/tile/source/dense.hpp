// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense`: the TileSource of a matrix in memory, of any strides; `dense_chunks`, of one that has whole chunks of 16
/// bytes, and `dense_words`, of one whose rows begin at multiples of 4 or 8 bytes; and `gathered`: some rows of a
/// matrix, by number, and `gathered_words`.
///
///     dense<bfloat16> const weights{matrix};
///     gathered<bfloat16> const tokens{hidden, order};     // row i is row order[i] of `hidden`; zeros if there is none
///     weights.load(group, tile, first_row, first_column);
///
/// Where rows lie at multiples of 16 bytes and the tile has chunk(), 16 bytes move at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/detail/load_columns.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The row of the matrix that is row i of the source; -1 if there is none.
struct own_rows {
  TESSERA_FN constexpr std::int64_t operator()(std::int64_t row) const { return row; }
};
struct listed_rows {
  array_view<std::int64_t const> list;
  std::int64_t rows;
  TESSERA_FN constexpr std::int64_t operator()(std::int64_t row) const {
    std::int64_t const found = list[row];
    return found >= 0 && found < rows ? found : -1;
  }
};

template <class T>
TESSERA_FN bool has_whole_chunks(matrix_view<T const> matrix) {
  constexpr std::int64_t size = tile_chunk<T>::size;
  return matrix.stride(1) == 1 && matrix.stride(0) % size == 0 &&
         reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0;
}

/// Loads a tile from a source of `rows` rows, element by element; `names` says which row of the matrix each of them is.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
template <class T, class Rows, class G, class Tile>
TESSERA_FN void load_elements(G const& group, Tile& tile, matrix_view<T const> matrix, std::int64_t rows,
                              Rows const& names, std::int64_t first_row, std::int64_t first_column) {
  // Where they are closer in memory, neighbouring lanes take neighbouring rows.
  bool const rows_are_neighbours = matrix.stride(0) == 1 && matrix.stride(1) != 1;
  if constexpr (std::is_same_v<G, serial_group<G::size>> && std::is_same_v<Rows, own_rows> &&
                has_columns_by_eights<Tile>()) {
    if (rows_are_neighbours) {
      return load_columns(tile, first_row, rows, [&](int at) -> T const* {
        std::int64_t const column = first_column + at;
        return column >= 0 && column < matrix.extent(1) ? &matrix.data[column * matrix.stride(1)] : nullptr;
      });
    }
  }
  for (int lane : group) {
    for (int i = lane; i < Tile::rows * Tile::columns; i += G::size) {
      int const at_row = rows_are_neighbours ? i % Tile::rows : i / Tile::columns;
      int const at_column = rows_are_neighbours ? i / Tile::rows : i % Tile::columns;
      std::int64_t const row = first_row + at_row;
      std::int64_t const column = first_column + at_column;
      bool const is_inside = row >= 0 && row < rows && column >= 0 && column < matrix.extent(1);
      std::int64_t const from = is_inside ? names(row) : -1;
      tile(at_row, at_column) = from < 0 ? T{} : matrix(from, column);
    }
  }
  group.sync();
}

/// The same in chunks, where the matrix has them, row by row: for one thread that plays all lanes.
template <class T, class Rows, class Tile>
TESSERA_FN void load_rows_serially(Tile& tile, matrix_view<T const> matrix, std::int64_t rows, Rows const& names,
                                   std::int64_t first_row, std::int64_t first_column) {
  constexpr int chunk = tile_chunk<T>::size;
  for (int i = 0; i < Tile::rows; ++i) {
    std::int64_t const row = first_row + i;
    std::int64_t const from = row >= 0 && row < rows ? names(row) : -1;
    for (int column = 0; column < Tile::columns; column += chunk) {
      tile.chunk(i, column) =
          from < 0 ? tile_chunk<T>{} : *reinterpret_cast<tile_chunk<T> const*>(&matrix(from, first_column + column));
    }
  }
}

/// The same in chunks, where the matrix has them.
template <class T, class Rows, class G, class Tile>
TESSERA_FN void load_rows(G const& group, Tile& tile, matrix_view<T const> matrix, std::int64_t rows, Rows const& names,
                          std::int64_t first_row, std::int64_t first_column) {
  constexpr int chunk = tile_chunk<T>::size;
  if constexpr (requires { tile.chunk(0, 0); }) {
    bool const is_inside = first_column >= 0 && first_column % chunk == 0 &&
                           first_column + Tile::columns <= matrix.extent(1) && has_whole_chunks(matrix);
    if (is_inside) {
      if constexpr (std::is_same_v<G, serial_group<G::size>>) {
        return load_rows_serially(tile, matrix, rows, names, first_row, first_column);
      }
      constexpr int chunks = Tile::columns / chunk;
      constexpr int count = Tile::rows * chunks;
      constexpr int in_flight =
          min(divide_up(count, G::size), 4);  // chunks that a lane loads before it writes the first
      for (int lane : group) {
        for (int first = lane; first < count; first += in_flight * G::size) {
          tile_chunk<T> held[in_flight];
          for (int i = 0; i < in_flight; ++i) {
            int const at = first + i * G::size;
            std::int64_t const row = first_row + at / chunks;
            std::int64_t const from = at < count && row >= 0 && row < rows ? names(row) : -1;
            held[i] = from < 0
                          ? tile_chunk<T>{}
                          : *reinterpret_cast<tile_chunk<T> const*>(&matrix(from, first_column + at % chunks * chunk));
          }
          for (int i = 0; i < in_flight; ++i) {
            int const at = first + i * G::size;
            if (count % (in_flight * G::size) == 0 || at < count) {
              tile.chunk(at / chunks, at % chunks * chunk) = held[i];
            }
          }
        }
      }
      group.sync();
      return;
    }
  }
  load_elements(group, tile, matrix, rows, names, first_row, first_column);
}

/// The TileSource of a matrix's own rows, whatever else each source of them can do.
template <class T>
struct rows_of_matrix {
  using value_type = T;

  matrix_view<T const> matrix;  ///< rows x columns

  constexpr rows_of_matrix() = default;
  TESSERA_FN constexpr rows_of_matrix(matrix_view<T const> rows) : matrix(rows) {}

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("rows of the source", matrix);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return matrix.extent(0); }
  TESSERA_FN constexpr std::int64_t columns() const { return matrix.extent(1); }
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    load_rows(group, tile, matrix, rows(), own_rows{}, first_row, first_column);
  }
};

/// The TileSource of a matrix's rows in the order of a list, whatever else each source of them can do.
template <class T>
struct rows_of_list {
  using value_type = T;

  matrix_view<T const> matrix;  ///< rows x columns
  /// For each row its number in the matrix; a number outside of the matrix gives zeros.
  array_view<std::int64_t const> order;

  constexpr rows_of_list() = default;
  TESSERA_FN constexpr rows_of_list(matrix_view<T const> rows, array_view<std::int64_t const> numbers)
      : matrix(rows), order(numbers) {}

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("rows of the source", matrix);
    use("numbers of rows", order);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return order.size(); }
  TESSERA_FN constexpr std::int64_t columns() const { return matrix.extent(1); }
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    load_rows(group, tile, matrix, rows(), listed_rows{order, matrix.extent(0)}, first_row, first_column);
  }
};

/// The bytes of a word of `Bytes` that are there, if so many columns are left.
template <class T, int Bytes>
TESSERA_FN constexpr int bytes_of_word(std::int64_t columns_left) {
  constexpr int size = Bytes / static_cast<int>(sizeof(T));
  return static_cast<int>(min(max(columns_left, std::int64_t{0}), std::int64_t{size})) * static_cast<int>(sizeof(T));
}

/// Whether tiles of a matrix from a column on are loaded in chunks: those that have elements have no others.
template <class T>
TESSERA_FN bool is_loaded_in_chunks(matrix_view<T const> matrix, std::int64_t first_column) {
  constexpr std::int64_t size = tile_chunk<T>::size;
  return first_column % size == 0 && matrix.extent(1) % size == 0 && has_whole_chunks(matrix);
}

/// Loads a tile of a matrix that cannot be loaded in chunks. Not inline: it is long, and rarely called.
template <class T, class Rows, class G, class Tile>
[[gnu::noinline]] TESSERA_FN void load_without_chunks(G group, Tile& tile, matrix_view<T const> matrix,
                                                      std::int64_t rows, Rows names, std::int64_t first_row,
                                                      std::int64_t first_column) {
  load_elements(group, tile, matrix, rows, names, first_row, first_column);
}

/// Starts to load a tile of a matrix's own rows, in chunks. A lane's chunks are below each other, so that each costs an
/// addition and a comparison. The address of a chunk outside of the matrix is not read.
template <class T, class G, class Tile>
TESSERA_FN void begin_own_rows(G const& group, Tile& tile, matrix_view<T const> matrix, std::int64_t first_row,
                               std::int64_t first_column) {
  constexpr int chunk = tile_chunk<T>::size;
  constexpr int chunks = Tile::columns / chunk;
  constexpr int rows_apart = G::size / chunks;
  static_assert(G::size % chunks == 0);
  auto const rows = static_cast<int>(min(max(matrix.extent(0) - first_row, std::int64_t{0}), std::int64_t{Tile::rows}));
  std::uintptr_t const step = static_cast<std::uintptr_t>(rows_apart * matrix.stride(0)) * sizeof(T);
  for (int lane : group) {
    int const column = lane % chunks * chunk;
    int const row = lane / chunks;
    int const left = first_column + column < matrix.extent(1) ? rows - row : 0;
    // An address as a number: of a chunk that is not there, or of a matrix without elements, it is none of a pointer.
    auto const first =
        reinterpret_cast<std::uintptr_t>(matrix.data) +
        static_cast<std::uintptr_t>((first_row + row) * matrix.stride(0) + first_column + column) * sizeof(T);
    each_constant<divide_up(Tile::rows, rows_apart)>([&](auto i) {
      constexpr int below = i.value * rows_apart;
      if (Tile::rows % rows_apart == 0 || row + below < Tile::rows) {
        copies_in_flight<G>::begin(tile.chunk(row + below, column),
                                   reinterpret_cast<tile_chunk<T> const*>(first + i.value * step), below < left);
      }
    });
  }
}
/// The same of listed rows; a number outside of the matrix gives zeros.
template <class T, class G, class Tile>
TESSERA_FN void begin_listed_rows(G const& group, Tile& tile, matrix_view<T const> matrix, std::int64_t rows,
                                  listed_rows const& names, std::int64_t first_row, std::int64_t first_column) {
  constexpr int chunk = tile_chunk<T>::size;
  constexpr int chunks = Tile::columns / chunk;
  for (int lane : group) {
    for (int at = lane; at < Tile::rows * chunks; at += G::size) {
      std::int64_t const row = first_row + at / chunks;
      std::int64_t const column = first_column + at % chunks * chunk;
      std::int64_t const from = row < rows && column < matrix.extent(1) ? names(row) : -1;
      auto const* const element = from < 0 ? matrix.data : &matrix(from, column);
      copies_in_flight<G>::begin(tile.chunk(at / chunks, at % chunks * chunk),
                                 reinterpret_cast<tile_chunk<T> const*>(element), from >= 0);
    }
  }
}

}  // namespace detail

/// The AsyncSource of a matrix whose rows are known to be whole elements next to each other that begin at multiples of
/// `Bytes`, 4 or 8, because suits() said so: words of so many bytes are copied asynchronously, where dense_chunks needs
/// multiples of 16.
template <class T, int Bytes>
struct dense_words : detail::rows_of_matrix<T> {
  static_assert(Bytes % sizeof(T) == 0, "tessera: words of a matrix have whole elements");
  using detail::rows_of_matrix<T>::rows_of_matrix, detail::rows_of_matrix<T>::matrix, detail::rows_of_matrix<T>::rows,
      detail::rows_of_matrix<T>::columns;
  static constexpr int size = Bytes / static_cast<int>(sizeof(T));  ///< elements of a word

  /// Whether a matrix has such rows.
  [[nodiscard]] TESSERA_FN static bool suits(matrix_view<T const> matrix) {
    return matrix.stride(1) == 1 && matrix.stride(0) % size == 0 &&
           reinterpret_cast<std::uintptr_t>(matrix.data) % Bytes == 0;
  }
  /// Starts to load a tile, from a column on that begins a word: see tile/source/async_source.hpp. A lane's words are
  /// below each other. The address of a word outside of the matrix is not read.
  template <class G, class Tile>
  requires(Tile::columns % size == 0 && G::size % (Tile::columns / size) == 0) TESSERA_FN
      void begin_load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    constexpr int in_row = Tile::columns / size;
    constexpr int rows_apart = G::size / in_row;
    auto const rows_left = static_cast<int>(min(max(rows() - first_row, std::int64_t{0}), std::int64_t{Tile::rows}));
    std::uintptr_t const step = static_cast<std::uintptr_t>(rows_apart * matrix.stride(0)) * sizeof(T);
    for (int lane : group) {
      int const column = lane % in_row * size;
      int const row = lane / in_row;
      int const bytes = detail::bytes_of_word<T, Bytes>(columns() - first_column - column);
      // An address as a number: that of a word that is not there is none of a pointer.
      auto const first =
          reinterpret_cast<std::uintptr_t>(matrix.data) +
          static_cast<std::uintptr_t>((first_row + row) * matrix.stride(0) + first_column + column) * sizeof(T);
      each_constant<divide_up(Tile::rows, rows_apart)>([&](auto i) {
        constexpr int below = i.value * rows_apart;
        if (Tile::rows % rows_apart == 0 || row + below < Tile::rows) {
          copies_in_flight<G>::template begin_word<Bytes>(&tile(row + below, column),
                                                          reinterpret_cast<void const*>(first + i.value * step),
                                                          row + below < rows_left ? bytes : 0);
        }
      });
    }
  }
};

template <class T>
struct dense : detail::rows_of_matrix<T> {
  using detail::rows_of_matrix<T>::rows_of_matrix, detail::rows_of_matrix<T>::matrix, detail::rows_of_matrix<T>::rows;

  /// Whether the matrix has words of so many bytes: see SourceOfWords.
  template <int Bytes>
  [[nodiscard]] TESSERA_FN bool has_words() const {
    return dense_words<T, Bytes>::suits(matrix);
  }
  /// Those words.
  template <int Bytes>
  [[nodiscard]] TESSERA_FN dense_words<T, Bytes> in_words() const {
    return {matrix};
  }
  /// Starts to load a tile that has chunks: see tile/source/async_source.hpp.
  template <class G, class Tile>
  requires requires(Tile& tile) { tile.chunk(0, 0); }
  TESSERA_FN void begin_load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    if constexpr (G::size % (Tile::columns / tile_chunk<T>::size) == 0) {
      if (detail::is_loaded_in_chunks(matrix, first_column)) {
        detail::begin_own_rows(group, tile, matrix, first_row, first_column);
      } else {
        detail::load_without_chunks(group, tile, matrix, rows(), detail::own_rows{}, first_row, first_column);
      }
    } else {
      this->load(group, tile, first_row, first_column);
    }
  }
};

/// The AsyncSource and FetchedSource of a matrix that is known to have whole chunks, because suits() said so: it asks
/// nothing of the matrix when it starts to load a tile, where `dense` asks each time.
template <class T>
struct dense_chunks : detail::rows_of_matrix<T> {
  using detail::rows_of_matrix<T>::rows_of_matrix, detail::rows_of_matrix<T>::matrix, detail::rows_of_matrix<T>::rows,
      detail::rows_of_matrix<T>::columns;

  /// Whether a matrix has whole chunks.
  [[nodiscard]] TESSERA_FN static bool suits(matrix_view<T const> matrix) {
    return detail::is_loaded_in_chunks(matrix, 0);
  }
  /// Starts to load a tile that has chunks, from a column on that begins a chunk: see tile/source/async_source.hpp.
  template <class G, class Tile>
  requires(G::size % (Tile::columns / tile_chunk<T>::size) == 0) TESSERA_FN
      void begin_load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    detail::begin_own_rows(group, tile, matrix, first_row, first_column);
  }

  /// A tile on its way to registers: see tile/source/fetched_source.hpp.
  template <class G, class Tile>
  requires(Tile::columns % tile_chunk<T>::size == 0) struct fetched {
    static constexpr int in_row = Tile::columns / tile_chunk<T>::size;  ///< chunks of a row of the tile
    static constexpr int count = Tile::rows * in_row;                   ///< chunks of the tile
    static constexpr int a_lane = divide_up(count, G::size);            ///< chunks that a lane holds
    /// Every G::size-th chunk of the tile.
    struct part {
      tile_chunk<T> chunks[a_lane];  ///< in the order of the tile
    };
    per_lane<part, G> parts;  ///< the chunks of all lanes
  };
  /// Starts to read a tile, whose first column begins a chunk.
  template <class G, class Tile>
  TESSERA_FN void fetch(G const& group, fetched<G, Tile>& to, std::int64_t first_row, std::int64_t first_column) const {
    using shape = fetched<G, Tile>;
    for (int lane : group) {
      for (int i = 0; i < shape::a_lane; ++i) {
        int const which = lane + i * G::size;
        std::int64_t const row = first_row + which / shape::in_row;
        std::int64_t const column = first_column + which % shape::in_row * tile_chunk<T>::size;
        bool const is_chunk = shape::count % G::size == 0 || which < shape::count;
        bool const is_inside = is_chunk && row < rows() && column < columns();
        to.parts[lane].chunks[i] =
            is_inside ? *reinterpret_cast<tile_chunk<T> const*>(&matrix(row, column)) : tile_chunk<T>{};
      }
    }
  }
  /// Waits for what was fetched and writes it to a tile of the type that it was fetched for; then sync the group.
  template <class G, class Tile>
  TESSERA_FN void store(G const& group, fetched<G, Tile> const& from, Tile& tile) const {
    using shape = fetched<G, Tile>;
    for (int lane : group) {
      for (int i = 0; i < shape::a_lane; ++i) {
        int const which = lane + i * G::size;
        if (shape::count % G::size == 0 || which < shape::count) {
          tile.chunk(which / shape::in_row, which % shape::in_row * tile_chunk<T>::size) = from.parts[lane].chunks[i];
        }
      }
    }
  }
};

/// The same of listed rows of such a matrix: the words of `gathered`.
template <class T, int Bytes>
struct gathered_words : detail::rows_of_list<T> {
  using detail::rows_of_list<T>::rows_of_list, detail::rows_of_list<T>::matrix, detail::rows_of_list<T>::order;
  using detail::rows_of_list<T>::rows, detail::rows_of_list<T>::columns;
  static constexpr int size = Bytes / static_cast<int>(sizeof(T));  ///< elements of a word

  /// Starts to load a tile, as dense_words does. A lane's numbers of rows are all read before its first word.
  template <class G, class Tile>
  requires(Tile::columns % size == 0 && G::size % (Tile::columns / size) == 0) TESSERA_FN
      void begin_load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    constexpr int in_row = Tile::columns / size;
    constexpr int rows_apart = G::size / in_row;
    constexpr int a_lane = divide_up(Tile::rows, rows_apart);
    detail::listed_rows const names{order, matrix.extent(0)};
    for (int lane : group) {
      int const column = lane % in_row * size;
      int const bytes = detail::bytes_of_word<T, Bytes>(columns() - first_column - column);
      std::int64_t from[a_lane];
      each_constant<a_lane>([&](auto i) {
        std::int64_t const row = first_row + lane / in_row + i.value * rows_apart;
        from[i.value] = row < rows() ? names(row) : -1;
      });
      each_constant<a_lane>([&](auto i) {
        int const row = lane / in_row + i.value * rows_apart;
        if (Tile::rows % rows_apart == 0 || row < Tile::rows) {
          // An address as a number: that of a word that is not there is none of a pointer.
          auto const at =
              reinterpret_cast<std::uintptr_t>(matrix.data) +
              static_cast<std::uintptr_t>(from[i.value] * matrix.stride(0) + first_column + column) * sizeof(T);
          auto const* const word = reinterpret_cast<void const*>(at);  // NOLINT(performance-no-int-to-ptr)
          copies_in_flight<G>::template begin_word<Bytes>(&tile(row, column), word, from[i.value] < 0 ? 0 : bytes);
        }
      });
    }
  }
};

/// The TileSource of a matrix's rows in the order of a list.
template <class T>
struct gathered : detail::rows_of_list<T> {
  using detail::rows_of_list<T>::rows_of_list, detail::rows_of_list<T>::matrix, detail::rows_of_list<T>::order,
      detail::rows_of_list<T>::rows;

  /// Whether the matrix has words of so many bytes: see SourceOfWords.
  template <int Bytes>
  [[nodiscard]] TESSERA_FN bool has_words() const {
    return dense_words<T, Bytes>::suits(matrix);
  }
  /// Those words.
  template <int Bytes>
  [[nodiscard]] TESSERA_FN gathered_words<T, Bytes> in_words() const {
    return {matrix, order};
  }
  /// Starts to load a tile that has chunks: see tile/source/async_source.hpp.
  template <class G, class Tile>
  requires requires(Tile& tile) { tile.chunk(0, 0); }
  TESSERA_FN void begin_load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    detail::listed_rows const names{order, matrix.extent(0)};
    if (detail::is_loaded_in_chunks(matrix, first_column)) {
      detail::begin_listed_rows(group, tile, matrix, rows(), names, first_row, first_column);
    } else {
      detail::load_without_chunks(group, tile, matrix, rows(), names, first_row, first_column);
    }
  }
};

static_assert(TileSource<dense<float>> && TileSource<dense_chunks<float>> && TileSource<dense_words<float, 4>> &&
              TileSource<gathered<float>> && TileSource<gathered_words<float, 4>>);

}  // namespace v0
}  // namespace tessera
