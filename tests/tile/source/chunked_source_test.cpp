// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/chunked_source.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using warp = serial_group<32>;

/// What the lanes store, one lane's chunks after the other's.
template <class T, int Rows, int Columns>
struct tile_of_lanes {
  using value_type = T;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  std::vector<tile_chunk<T>> stored{static_cast<std::size_t>(Rows * Columns / tile_chunk<T>::size)};
  std::vector<int> numbers = {};

  tile_chunk<T>& lane_chunk(int i, int part) {
    numbers.push_back(i * 100 + part);
    return stored[numbers.size() - 1];
  }
};

/// Codes of rows x columns, the last `spare` of which are no part of the matrix.
template <class Q>
struct matrix_of_codes {
  using source_type = dequantized<Q, bfloat16>;
  static constexpr int in_element = source_type::is_packed ? 2 : 1;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
  std::vector<stored_code<Q>> codes;
  std::vector<typename Q::params_type> params;

  matrix_of_codes(std::int64_t row_count, std::int64_t column_count, std::int64_t spare)
      : rows(row_count), columns(column_count), stride(column_count / in_element + spare) {
    codes.resize(static_cast<std::size_t>(rows * stride) + 16);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = bit_cast<stored_code<Q>>(static_cast<std::uint8_t>(i * 37 % 251));
    }
    Q const q;
    for (std::int64_t i = 0; i < rows * groups(); ++i) {
      auto range = q.range().identity();
      q.range().push(range, static_cast<float>(i % 7) + 0.5F);
      q.range().push(range, -1.0F);
      params.push_back(q.fit(range));
    }
  }
  [[nodiscard]] std::int64_t groups() const { return divide_up(columns, std::int64_t{Q::group}); }
  [[nodiscard]] source_type source() {
    auto const at = reinterpret_cast<std::uintptr_t>(codes.data()) % 16;
    auto const* const aligned = codes.data() + (16 - at) % 16;
    return {{}, {aligned, {rows, columns / in_element}, {stride, 1}}, {params.data(), {rows, groups()}}};
  }
};

template <class Q>
void check_lanes(std::int64_t rows, std::int64_t columns) {
  using source_type = dequantized<Q, bfloat16>;
  constexpr int chunk = source_type::code_chunk::size;
  constexpr int parts = chunk / 8;
  using lanes_tile = tile_of_lanes<bfloat16, 16, 4 * chunk>;
  using plain_tile = staged_tile<bfloat16, 16, 4 * chunk>;
  STATIC_REQUIRE(ChunkedSource<source_type, warp, lanes_tile>);
  matrix_of_codes<Q> matrix(rows, columns, 16);
  source_type const source = matrix.source();
  REQUIRE(source.has_whole_chunks());
  warp const group{};
  for (std::int64_t first_row = 0; first_row < rows; first_row += 16) {
    for (std::int64_t first_column = 0; first_column < columns + 4 * chunk; first_column += 4 * chunk) {
      CAPTURE(rows, columns, first_row, first_column);
      plain_tile expected;
      source.load(group, expected, first_row, first_column);
      lanes_tile tile;
      typename source_type::template fetched<warp, lanes_tile> next;
      source.fetch(group, next, first_row, first_column);
      source.store(group, next, tile);
      REQUIRE(tile.numbers.size() == static_cast<std::size_t>(32 * 2 * parts));
      for (int which = 0; which < 32 * 2 * parts; ++which) {
        int const lane = which / (2 * parts);
        int const i = which / parts % 2;
        int const part = which % parts;
        REQUIRE(tile.numbers[static_cast<std::size_t>(which)] == i * 100 + part);
        for (int k = 0; k < 8; ++k) {
          REQUIRE(tile.stored[static_cast<std::size_t>(which)].values[k].bits ==
                  expected(lane / 4 + 8 * i, lane % 4 * chunk + part * 8 + k).bits);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("lanes store their own chunks of codes as a tile with elements has them", "[host]") {
  check_lanes<symmetric_quantizer<8, 32>>(20, 80);
  check_lanes<asymmetric_quantizer<8, 16>>(16, 64);
  check_lanes<two_to_a_byte<symmetric_quantizer<4, 64>>>(17, 160);
  check_lanes<two_to_a_byte<asymmetric_quantizer<4, 32>>>(33, 128);
  check_lanes<scaled_float_quantizer<float8_e4m3, 16>>(16, 112);
}

TEST_CASE("codes whose rows are no whole chunks say so", "[host]") {
  using pairs = two_to_a_byte<symmetric_quantizer<4, 32>>;
  CHECK(matrix_of_codes<pairs>(3, 64, 16).source().has_whole_chunks());
  CHECK_FALSE(matrix_of_codes<pairs>(3, 80, 8).source().has_whole_chunks());   // rows end inside of a chunk
  CHECK_FALSE(matrix_of_codes<pairs>(3, 64, 24).source().has_whole_chunks());  // rows begin at 8 of 16 bytes
  CHECK_FALSE(matrix_of_codes<symmetric_quantizer<8, 24>>(3, 48, 0).source().has_whole_chunks());
}

TEST_CASE("a source without chunks of codes is no ChunkedSource", "[host]") {
  STATIC_REQUIRE_FALSE(ChunkedSource<dense<bfloat16>, warp, tile_of_lanes<bfloat16, 16, 64>>);
}
