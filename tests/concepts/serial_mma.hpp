// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A TileMma for tests: plain float arrays, multiplied by one lane of the host.
#pragma once

#include <cstdint>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>

namespace tessera_test {

struct one_lane {};

/// `Rows` x `Columns` sums of `Depth` products each.
template <int Rows, int Columns, int Depth>
struct serial_mma {
  template <int R, int C>
  struct tile {
    float values[R][C];
  };

  using group_type = one_lane;
  using operand_type = float;
  using sum_type = float;
  using a_tile = tile<Rows, Depth>;
  using b_tile = tile<Depth, Columns>;
  using sum_tile = tile<Rows, Columns>;

  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int depth = Depth;

  TESSERA_FN static constexpr void load_a(one_lane, a_tile& a, float const* from, std::int64_t stride) {
    load(a, from, stride);
  }
  TESSERA_FN static constexpr void load_b(one_lane, b_tile& b, float const* from, std::int64_t stride) {
    load(b, from, stride);
  }
  TESSERA_FN static constexpr void load_b_transposed(one_lane, b_tile& b, float const* from, std::int64_t stride) {
    for (int column = 0; column < Columns; ++column) {
      for (int k = 0; k < Depth; ++k) {
        b.values[k][column] = from[column * stride + k];
      }
    }
  }
  TESSERA_FN static constexpr void clear(one_lane, sum_tile& sums) { sums = {}; }

  TESSERA_FN static constexpr void store(one_lane, sum_tile const& sums, float* to, std::int64_t stride) {
    for (int row = 0; row < Rows; ++row) {
      for (int column = 0; column < Columns; ++column) {
        to[row * stride + column] = sums.values[row][column];
      }
    }
  }

  TESSERA_FN static constexpr void multiply(one_lane, a_tile const& a, b_tile const& b, sum_tile& sums) {
    for (int row = 0; row < Rows; ++row) {
      for (int column = 0; column < Columns; ++column) {
        for (int k = 0; k < Depth; ++k) {
          sums.values[row][column] += a.values[row][k] * b.values[k][column];
        }
      }
    }
  }

 private:
  template <int R, int C>
  TESSERA_FN static constexpr void load(tile<R, C>& tile, float const* from, std::int64_t stride) {
    for (int row = 0; row < R; ++row) {
      for (int column = 0; column < C; ++column) {
        tile.values[row][column] = from[row * stride + column];
      }
    }
  }
};

}  // namespace tessera_test
