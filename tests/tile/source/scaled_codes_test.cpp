// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/laws/scaled_source.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/source/scaled_codes.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

template <class Q, class Value>
struct matrix_of_codes {
  using source_type = scaled_codes<Q, Value>;
  static constexpr int in_element = source_type::is_packed ? 2 : 1;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t groups = divide_up(columns, std::int64_t{Q::group});
  // One more than there are: addresses of what does not exist may be formed, but not from a null pointer.
  std::vector<stored_code<Q>> codes = std::vector<stored_code<Q>>(static_cast<std::size_t>(rows * columns + 1));
  std::vector<symmetric_params> params = {};

  matrix_of_codes(std::int64_t row_count, std::int64_t column_count) : rows(row_count), columns(column_count) {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = bit_cast<stored_code<Q>>(static_cast<std::uint8_t>(i * 37 % 251));
    }
    for (std::int64_t i = 0; i <= rows * groups; ++i) {
      params.push_back({0.001F + 0.37F * static_cast<float>(i % 13)});
    }
  }
  [[nodiscard]] source_type source() const {
    return {{}, {codes.data(), {rows, columns / in_element}}, {params.data(), {rows, groups}}};
  }
};

template <class Q, class Value>
void check_both_laws(std::int64_t rows, std::int64_t columns) {
  CAPTURE(rows, columns);
  matrix_of_codes<Q, Value> const matrix(rows, columns);
  auto const source = matrix.source();
  STATIC_REQUIRE(OperandCodes<scaled_codes<Q, Value>>);
  CHECK(testing::check_scaled_laws(source, serial_group<32>{}).text().empty());
  CHECK(testing::check_laws(source, serial_group<32>{}).text().empty());
}

}  // namespace

TEST_CASE("scaled codes keep the laws of scaled sources and of tile sources", "[host]") {
  check_both_laws<symmetric_quantizer<8, 64>, bfloat16>(5, 80);
  check_both_laws<symmetric_quantizer<8, 32>, float16>(3, 64);
  check_both_laws<two_to_a_byte<symmetric_quantizer<4, 32>>, bfloat16>(4, 96);
  check_both_laws<two_to_a_byte<symmetric_quantizer<4, 128>>, float16>(2, 160);
  check_both_laws<two_to_a_byte<symmetric_quantizer<4, 64>>, bfloat16>(0, 0);
}

TEST_CASE("scaled codes load what dequantized ones do", "[host]") {
  using quantizer = two_to_a_byte<symmetric_quantizer<4, 32>>;
  matrix_of_codes<quantizer, bfloat16> const matrix(9, 96);
  auto const scaled = matrix.source();
  dequantized<quantizer, bfloat16> const rounded = scaled.rounded();
  staged_tile<bfloat16, 16, 64> found;
  staged_tile<bfloat16, 16, 64> expected;
  scaled.load(serial_group<32>{}, found, 0, 32);
  rounded.load(serial_group<32>{}, expected, 0, 32);
  int wrong = 0;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 64; ++column) {
      wrong += found(row, column).bits == expected(row, column).bits ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  CHECK(scaled.has_whole_chunks() == rounded.has_whole_chunks());
}
