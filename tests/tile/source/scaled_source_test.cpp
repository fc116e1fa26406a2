// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/laws/scaled_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/scaled_codes.hpp>
#include <tessera/tile/source/scaled_operand.hpp>
#include <tessera/tile/source/scaled_source.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Numbers 0, 1, 2, ... of 4 bits in three equal rows of 16, with a scale for 8 of them. `Broken` says what is wrong
/// with it.
enum class fault { none, load, widen, scale, distance };
template <fault Broken>
struct counted {
  using value_type = bfloat16;
  static constexpr int group = 8;
  static constexpr int code_bits = 4;
  std::uint8_t const* bytes;
  float const* scales;

  std::int64_t rows() const { return 3; }
  std::int64_t columns() const { return 16; }
  bfloat16 exact(std::int64_t, std::int64_t column) const {
    int const nibble = bytes[column / 2] >> (4 * (column % 2)) & 15;
    return store<bfloat16>(static_cast<float>(nibble >= 8 ? nibble - 16 : nibble));
  }
  float scale(std::int64_t, std::int64_t which) const { return scales[which]; }
  float const* scale_address(std::int64_t row, std::int64_t which) const {
    return scales + (Broken == fault::scale ? 1 - which : which) + (Broken == fault::distance && row == 2 ? 2 : 0);
  }
  std::uint8_t const* code_bytes(std::int64_t, std::int64_t column) const { return bytes + column / 2; }
  bool has_whole_chunks() const { return false; }
  template <class G>
  static void widen(G const& lanes, std::uint32_t word, std::uint32_t (&pairs)[4]) {
    widen_exactly<bfloat16, 4>(lanes, Broken == fault::widen ? word >> 4 : word, pairs);
  }
  template <class Group, class Tile>
  void load(Group const& lanes, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    for (int lane : lanes) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += Group::size) {
        std::int64_t const row = first_row + i / Tile::columns;
        std::int64_t const column = first_column + i % Tile::columns;
        float const value = row < 3 && column < 16 ? tessera::load(exact(row, column)) * scale(row, column / 8) : 0.0F;
        tile(i / Tile::columns, i % Tile::columns) =
            store<bfloat16>(Broken == fault::load && column == 3 ? 2 * value : value);
      }
    }
  }
};

template <fault Broken>
bool is_lawful() {
  std::uint8_t const bytes[8] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
  float const scales[4] = {0.3F, 1.7F, 0.3F, 1.7F};
  STATIC_REQUIRE(OperandCodes<counted<Broken>>);
  return testing::check_scaled_laws(counted<Broken>{bytes, scales}, serial_group<1>{}).text().empty();
}

}  // namespace

TEST_CASE("the laws of scaled sources accept a right source and refuse wrong ones", "[host]") {
  CHECK(is_lawful<fault::none>());
  CHECK_FALSE(is_lawful<fault::load>());
  CHECK_FALSE(is_lawful<fault::widen>());
  CHECK_FALSE(is_lawful<fault::scale>());
  CHECK_FALSE(is_lawful<fault::distance>());
}

TEST_CASE("what has no scales is no scaled source, and what is multiplied as it is has no operands to be widened",
          "[host]") {
  STATIC_REQUIRE_FALSE(ScaledSource<dense<bfloat16>>);
  STATIC_REQUIRE(ScaledSource<scaled_operand<symmetric_quantizer<8, 128>>>);
  STATIC_REQUIRE_FALSE(OperandCodes<scaled_operand<symmetric_quantizer<8, 128>>>);
  STATIC_REQUIRE(OperandCodes<scaled_codes<symmetric_quantizer<8, 128>, bfloat16>>);
}
