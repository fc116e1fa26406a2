// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_logits`: makes a tile of a classifier's logits in scratch, from hidden states and classifier rows. The
/// portable forward and backward pass both make their logits here, by the same additions, so that they agree to the
/// last bit.
///
///     logit = map(cap * tanh((hidden . row + bias) / cap) / temperature)
///
/// Where hidden states and classifier have words (SourceOfWords), the next steps of the depth are on their way while
/// one is multiplied (`pipelined`), from sm_80 on. 8192 tokens, 16384 entries, 2304 to 2306 channels on one H200, in
/// TFLOP/s: step by step as it was; as it is; and with as many registers as a lane wants, so that a multiprocessor has
/// one group at a time:
///
///     rows begin at multiples of     bf16, 16 bytes     4          2 (no words)    tf32, 16 bytes     4
///     logits that are reduced        71  195  152    21 136 116    21  30  21     35   99   81    15  82  64
///     logits and their gradients     59  184  137    17 110  85    17  31  18     30  106   79    15  66  51
///
/// fp32, which tensor cores do not multiply: 30 and 32 in all ways.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: the global names are those that nvcc has on both sides
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/async_source.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// What the options make of sums of products: a bias, a cap and a temperature. A LogitMap comes after it.
template <class T>
struct logit_scaling {
  array_view<T const> bias;   ///< a value for each row of the classifier, or null
  float cap;                  ///< logits stay below it in magnitude; 0: no cap
  float inverse_temperature;  ///< logits are multiplied by it

  /// The logit of a sum. Minus infinities stay, except under a cap, which makes them -cap.
  TESSERA_FN float operator()(float sum, std::int64_t column) const {
    float const biased = bias.data != nullptr ? sum + static_cast<float>(load(bias[column])) : sum;
    return (cap > 0.0F ? cap * ::tanhf(biased / cap) : biased) * inverse_temperature;
  }
  /// Whether sums are only multiplied by the inverse temperature.
  TESSERA_FN bool only_multiplies() const { return bias.data == nullptr && !(cap > 0.0F); }
  /// The derivative of the logit by the sum, given the logit. It is NaN for a NaN.
  TESSERA_FN float slope(float logit) const {
    float const bent = cap > 0.0F ? logit / (inverse_temperature * cap) : 0.0F;
    return (1.0F - bent * bent) * inverse_temperature;
  }
  /// What logits are multiplied by to be parts of the cap, for slopes of many; 0 without a cap.
  [[nodiscard]] TESSERA_FN float of_cap() const { return cap > 0.0F ? 1.0F / (inverse_temperature * cap) : 0.0F; }
  /// The derivative by the sum, given the logit and of_cap().
  [[nodiscard]] TESSERA_FN float slope(float logit, float by_cap) const {
    float const bent = cap > 0.0F ? logit * by_cap : 0.0F;
    return (1.0F - bent * bent) * inverse_temperature;
  }
};

/// The extents and types of a gemm_tile, for programs that use it with other groups.
template <class Tile>
struct loss_tile;
/// The extents and types of a gemm_tile, of which twice its depth is staged at a time.
template <class T, class Shape, class Host>
struct loss_tile<gemm_tile<T, Shape, Host>> {
  /// The name of the operands' type: bfloat16, float16, float or tf32.
  using operand_name = T;
  using operand = gemm_operand<T>;
  using value_type = typename operand::value_type;
  static_assert(std::is_same_v<typename operand::sum_type, float>, "tessera: a loss has logits in fp32");
  /// What a call is given as the classifier.
  using classifier_type = matrix_view<value_type const>;
  /// The TileSource of the classifier's rows.
  using classifier_source = dense<value_type>;
  static constexpr bool has_source = false;   ///< whether the classifier is a source, whose rows are made when needed
  static constexpr int rows = Shape::m;       ///< tokens
  static constexpr int columns = Shape::n;    ///< entries of the vocabulary
  static constexpr int depth = 2 * Shape::k;  ///< depth that is staged at a time
  static constexpr int lanes = rows * columns >= 128 * 128 ? 256 : 128;
  static constexpr int blocks_per_multiprocessor = 512 / lanes;  ///< with up to 128 registers for each lane
  static constexpr int parts = lanes / rows;            ///< lanes that share a row, each with a part of its columns
  static constexpr int part_columns = columns / parts;  ///< columns of each part
  static_assert(lanes % rows == 0 && columns % parts == 0,
                "tessera: a loss's tile has 64 or 128 rows, and 64 or 128 columns");

  static constexpr int stages = 3;  ///< stages of steps on their way, where hidden states and classifier have words
  /// What is multiplied.
  struct operand_stages {
    staged_tile<value_type, rows, depth> a[stages];     ///< hidden states
    staged_tile<value_type, columns, depth> b[stages];  ///< rows of the classifier
  };

  /// The scratch of a tile. Logits lie where the operands were, since these are no longer needed. Rows of logits lie
  /// one element further apart than they are long, so that lanes that each read a row use different banks.
  struct scratch_type {
    union {
      operand_stages staged;               ///< while sums of products are made
      float logits[rows * (columns + 1)];  ///< the logits of the tile, afterwards
    };
    /// The logit of a row and a column of the tile.
    TESSERA_FN float& logit(int row, int column) { return logits[row * (columns + 1) + column]; }
  };
  template <Group G>
  using mma = gemm_tile<T, std::conditional_t<detail::one_thread_plays<G>(), shape<rows, columns, depth>, Shape>, G>;
};

/// A gemm_tile of a loss whose classifier is a TileSource of the operands' type, such as `converted` or `dequantized`.
template <class Tile, TileSource Source>
struct tile_with_classifier {};
/// The extents and types of the gemm_tile, with the other classifier.
template <class Tile, TileSource Source>
struct loss_tile<tile_with_classifier<Tile, Source>> : loss_tile<Tile> {
  static_assert(std::is_same_v<typename Source::value_type, typename loss_tile<Tile>::value_type>,
                "tessera: a source of a classifier has elements of the type that hidden states have");
  using classifier_type = Source;           ///< what callers give
  using classifier_source = Source;         ///< what programs load tiles from
  static constexpr bool has_source = true;  ///< whether rows are made of something else
};

template <class T, int Bytes>
struct banded_words;

/// The rows of a classifier that are in a band of memory, as a source of the whole classifier: no others are asked for.
template <class T>
struct banded_rows {
  using value_type = T;

  matrix_view<T const> band;  ///< rows of the entries from `first` on x channels
  std::int64_t first;         ///< the entry of the band's first row, a multiple of a tile's columns
  std::int64_t vocabulary;    ///< entries there are

  TESSERA_FN constexpr std::int64_t rows() const { return vocabulary; }
  TESSERA_FN constexpr std::int64_t columns() const { return band.extent(1); }
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    dense<T>{band}.load(group, tile, first_row - first, first_column);
  }
  /// Whether words of so many bytes make up the rows.
  template <int Bytes>
  [[nodiscard]] TESSERA_FN bool has_words() const {
    return dense_words<T, Bytes>::suits(band);
  }
  /// The band as words of so many bytes, which it must have.
  template <int Bytes>
  [[nodiscard]] TESSERA_FN banded_words<T, Bytes> in_words() const {
    return {band, first, vocabulary};
  }
};

/// Such a band of words of so many bytes, as dense_words are.
template <class T, int Bytes>
struct banded_words : banded_rows<T> {
  /// Starts to load a tile, as AsyncSource says. Collective.
  template <class G, class Tile>
  TESSERA_FN void begin_load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    dense_words<T, Bytes>{this->band}.begin_load(group, tile, first_row - this->first, first_column);
  }
};

/// Makes tiles of logits, which are still to go through a Map.
template <class Tile, LogitMap Map = identity_logits>
struct loss_logits {
  using layout = loss_tile<Tile>;
  using value_type = typename layout::value_type;

  gathered<value_type> hidden;                    ///< hidden states, in rows of the list of tokens
  typename layout::classifier_source classifier;  ///< vocabulary x channels
  /// From what the options make of sums to logits. It is not the last member: nvcc 13.0 miscounts an empty one there.
  [[no_unique_address]] Map map;
  logit_scaling<value_type> scaling;  ///< from sums to the map's arguments

  /// How many tiles cover the tokens.
  TESSERA_FN constexpr std::int64_t row_tiles() const { return divide_up(hidden.rows(), std::int64_t{layout::rows}); }
  /// How many tiles cover the vocabulary.
  TESSERA_FN constexpr std::int64_t column_tiles() const {
    return divide_up(classifier.rows(), std::int64_t{layout::columns});
  }
  /// The first of the tiles whose rows can be loaded: of all of them, or of those of a band.
  TESSERA_FN constexpr std::int64_t first_column_tile() const {
    if constexpr (requires { classifier.band; }) {
      return classifier.first / layout::columns;
    } else {
      return 0;
    }
  }
  /// One past the last of the tiles whose rows can be loaded.
  TESSERA_FN constexpr std::int64_t end_column_tile() const {
    if constexpr (requires { classifier.band; }) {
      return divide_up(classifier.first + classifier.band.extent(0), std::int64_t{layout::columns});
    } else {
      return column_tiles();
    }
  }

  /// The logit of a row of the list and an entry, from what compute() has left for them.
  TESSERA_FN float mapped(float scaled, std::int64_t row, std::int64_t entry) const {
    if constexpr (leaves_logits<Map>) {
      return scaled;
    } else {
      return scaled == -infinity ? scaled : map(scaled, hidden.order[row], entry);
    }
  }
  /// The derivative of that logit by the sum of products.
  TESSERA_FN float slope(float scaled, std::int64_t row, std::int64_t entry) const {
    if constexpr (leaves_logits<Map>) {
      return scaling.slope(scaled);
    } else {
      float const of_map = scaled == -infinity ? 1.0F : map.slope(scaled, hidden.order[row], entry);
      return scaling.slope(scaled) * of_map;
    }
  }

  /// Fills the tile with scaled sums, which mapped() makes logits. Those beyond the vocabulary are undefined. Ends with
  /// a sync.
  template <Group G>
  TESSERA_FN void compute(G const& group, std::int64_t first_row, std::int64_t first_column,
                          typename layout::scratch_type& scratch) const {
    using mma = typename layout::template mma<G>;
    typename mma::sum_tile sums;
    mma::clear(group, sums);
    group.sync();  // all lanes have read the logits before, where the operands go
    if constexpr (SourceOfWords<typename layout::classifier_source> && !is_serial_group<G>) {
      if (!multiply_words<mma>(group, hidden, classifier, {first_row, first_column}, scratch.staged, sums)) {
        multiply_steps<mma>(group, first_row, first_column, scratch.staged, sums);
      }
    } else {
      multiply_steps<mma>(group, first_row, first_column, scratch.staged, sums);
    }
    group.sync();  // all lanes have read the operands, where the logits go
    if (scaling.only_multiplies() && first_column + layout::columns <= classifier.rows()) {
      mma::each(group, sums, keep_multiplied{scaling.inverse_temperature, scratch});
    } else {
      mma::each(group, sums, keep{scaling, scratch, first_column, classifier.rows()});
    }
    group.sync();
  }

 private:
  /// Adds the products of all steps, each of which is loaded and multiplied.
  template <class Mma, Group G>
  TESSERA_FN void multiply_steps(G const& group, std::int64_t first_row, std::int64_t first_column,
                                 typename layout::operand_stages& staged, typename Mma::sum_tile& sums) const {
    for (std::int64_t first = 0; first < classifier.columns(); first += layout::depth) {
      group.sync();  // all lanes have read the step before
      hidden.load(group, staged.a[0], first_row, first);
      classifier.load(group, staged.b[0], first_column, first);
      group.sync();
      multiply_staged<Mma>(group, staged.a[0], staged.b[0], sums);
    }
  }
  /// Keeps sums as most calls have them: a loop over a row is one of vectors then.
  struct keep_multiplied {
    float factor;
    typename layout::scratch_type& scratch;

    TESSERA_FN void operator()(int row, int column, float sum) const { scratch.logit(row, column) = sum * factor; }
  };
  struct keep {
    logit_scaling<value_type> const& scaling;
    typename layout::scratch_type& scratch;
    std::int64_t first_column;
    std::int64_t vocabulary;

    TESSERA_FN void operator()(int row, int column, float sum) const {
      if (first_column + column < vocabulary) {
        scratch.logit(row, column) = scaling(sum, first_column + column);
      }
    }
  };
};

namespace detail {

/// A tile with a source, with bands of its rows in the source's place; other tiles are themselves.
template <class Tile>
struct band_tile {
  using type = Tile;
};
template <class Tile, TileSource Source>
struct band_tile<tile_with_classifier<Tile, Source>> {
  using type = tile_with_classifier<Tile, banded_rows<typename Source::value_type>>;
};

}  // namespace detail

/// The tile by which portable programs multiply: rows of a source are read from a band of memory.
template <class Tile>
using tile_with_band = typename detail::band_tile<Tile>::type;

/// The logits whose rows are in a band that begins with entry `first`.
template <class Tile, LogitMap Map>
loss_logits<tile_with_band<Tile>, Map> banded_logits(loss_logits<Tile, Map> const& logits,
                                                     matrix_view<typename loss_tile<Tile>::value_type const> band,
                                                     std::int64_t first) {
  return {logits.hidden, {band, first, logits.classifier.rows()}, logits.map, logits.scaling};
}

}  // namespace v0
}  // namespace tessera
