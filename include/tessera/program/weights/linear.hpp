// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The program behind algorithm/weights/compressed_linear.hpp: multiplies rows of inputs with rows of weights that it
/// decodes block by block.
///
/// The order of additions is fixed, so that every executor gives the same bits: lane l of 32 adds up the columns l, l +
/// 32, ... with one fused multiply-add each, beginning with zero. The lanes' sums are added in the order of
/// tile/per_lane.hpp, and the bias last. All sums are in fp32; the result is rounded once.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Multiplies with a band of weights. One group for each band of output rows and each tile of tokens: it decodes every
/// block that covers its band once.
template <class Reader, class Input, class Output>
struct compressed_linear_rows {
  /// The type of decoded weights.
  using weight_type = typename Reader::value_type;
  static constexpr int lanes = Reader::lanes;
  /// Tokens of a tile, for each of which a lane keeps a sum in registers.
  static constexpr int token_tile = 16;
  /// A band has at least as many weights as this many blocks, so that few are decoded twice.
  static constexpr int band_blocks = 4;
  struct scratch_type {
    /// The decoded weights of one block.
    alignas(64) weight_type weights[Reader::largest_block];
    typename Reader::scratch_type reader;  ///< scratch of the reader
  };

  Reader reader;                       ///< decodes a block
  matrix_view<Input const> inputs;     ///< tokens x columns
  array_view<weight_type const> bias;  ///< a value for each row of weights, or null
  matrix_view<Output> outputs;         ///< tokens x rows of weights
  std::int64_t band_rows;              ///< weight rows of a group

  /// The rows of weights that a group takes: whole blocks of them.
  static std::int64_t rows_of_band(std::int64_t block_weights, std::int64_t columns) {
    return divide_up(band_blocks * block_weights, max(columns, std::int64_t{1}));
  }
  std::int64_t groups() const { return divide_up(outputs.extent(1), band_rows) * token_tiles(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const first_token = which % token_tiles() * token_tile;
    int const tokens = static_cast<int>(min(std::int64_t{token_tile}, inputs.extent(0) - first_token));
    std::int64_t const first_row = which / token_tiles() * band_rows;
    std::int64_t const last_row = min(first_row + band_rows, outputs.extent(1));
    per_lane<token_sums, G> sums;
    clear(group, sums);
    std::int64_t const columns = inputs.extent(1);
    for (std::int64_t row = first_row; columns == 0 && row < last_row; ++row) {
      write_row(group, row, first_token, tokens, sums);
    }
    std::int64_t const size = reader.block_weights();
    std::int64_t const last = last_row * columns;
    for (std::int64_t block = first_row * columns / size; block * size < last; ++block) {
      group.sync();  // all lanes have read the block before
      reader.decode(group, block, scratch.weights, scratch.reader);
      std::int64_t at = max(first_row * columns, block * size);
      std::int64_t const end = min(last, (block + 1) * size);
      while (at < end) {
        std::int64_t const row = at / columns;
        std::int64_t const row_end = (row + 1) * columns;
        std::int64_t const stop = min(end, row_end);
        add_products(group, scratch.weights + (at - block * size), at - row * columns, static_cast<int>(stop - at),
                     first_token, tokens, sums);
        if (stop == row_end) {
          write_row(group, row, first_token, tokens, sums);
          clear(group, sums);
        }
        at = stop;
      }
    }
  }

 private:
  struct token_sums {
    float of[token_tile];
  };

  TESSERA_FN constexpr std::int64_t token_tiles() const {
    return divide_up(inputs.extent(0), std::int64_t{token_tile});
  }

  template <Group G>
  TESSERA_FN static void clear(G const& group, per_lane<token_sums, G>& sums) {
    for (int lane : group) {
      for (int token = 0; token < token_tile; ++token) {
        sums[lane].of[token] = 0.0F;
      }
    }
  }

  /// Adds the products of `count` weights of one row, the first of which is in column `column`.
  template <Group G>
  TESSERA_FN void add_products(G const& group, weight_type const* weights, std::int64_t column, int count,
                               std::int64_t first_token, int tokens, per_lane<token_sums, G>& sums) const {
    int const beyond = static_cast<int>(column % lanes);
    for (int lane : group) {
      for (int i = (lane + lanes - beyond) % lanes; i < count; i += lanes) {
        float const weight = load(weights[i]);
        for (int token = 0; token < token_tile; ++token) {
          if (token < tokens) {
            float const input = load(inputs(first_token + token, column + i));
            sums[lane].of[token] = multiply_add(input, weight, sums[lane].of[token]);
          }
        }
      }
    }
  }

  template <Group G>
  TESSERA_FN void write_row(G const& group, std::int64_t row, std::int64_t first_token, int tokens,
                            per_lane<token_sums, G> const& sums) const {
    for (int token = 0; token < token_tile; ++token) {
      if (token >= tokens) {
        continue;
      }
      per_lane<float, G> part;
      for (int lane : group) {
        part[lane] = sums[lane].of[token];
      }
      float const total = sum(group, part);
      for (int lane : group) {
        if (lane == token) {
          float const biased = bias.data != nullptr ? total + load(bias[row]) : total;
          outputs(first_token + token, row) = store<Output>(biased);
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
