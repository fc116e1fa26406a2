// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Bit planes: the layout of the bits of many equally wide numbers, in which 32 lanes read and write whole aligned
/// words.
///
/// A lane handles 16 bytes of values at a time (8 bf16, 4 fp32, 16 fp8). A *row* is what 32 lanes handle at a time.
/// Numbers of `bits` bits are stored as planes whose widths are powers of two (24 = 16 + 8, 11 = 8 + 2 + 1), lowest
/// bits in the first plane. In a plane every lane owns whole units of at least 4 bytes. Where a lane has fewer bytes in
/// a row, a unit holds several rows.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// One plane of numbers of `width` bits (1, 2, 4, 8 or 16), for lanes that handle `weights_per_lane` values of a row.
struct bit_plane {
  static constexpr int lanes = 32;  ///< lanes of a row

  int width = 8;             ///< bits of a number: 1, 2, 4, 8 or 16
  int weights_per_lane = 8;  ///< values of a lane in a row

  /// Bytes of a unit, which a lane owns without a gap.
  TESSERA_FN constexpr int unit_bytes() const { return max(4, weights_per_lane * width / 8); }
  /// Rows that a unit holds.
  TESSERA_FN constexpr int rows_per_unit() const { return unit_bytes() * 8 / (weights_per_lane * width); }

  /// The bit at which value `weight` of `lane` in `row` begins, counted from the start of the plane.
  TESSERA_FN constexpr std::int64_t bit_offset(std::int64_t row, int lane, int weight) const {
    std::int64_t const unit = (row / rows_per_unit()) * lanes + lane;
    int const within = (static_cast<int>(row % rows_per_unit()) * weights_per_lane + weight) * width;
    return unit * unit_bytes() * 8 + within;
  }

  /// Whether value i lies at bit i * width, so that serial code may ignore lanes.
  TESSERA_FN constexpr bool is_linear() const { return rows_per_unit() == 1; }
};

/// The planes of numbers of `bits` bits: the lowest `plane(0).width` bits are in plane 0, and so on.
struct bit_planes {
  int bits = 8;              ///< bits of a number
  int weights_per_lane = 8;  ///< values of a lane in a row

  /// The number of planes: 16-bit planes as long as they fit, then one plane for each set bit of the rest, widest
  /// first.
  TESSERA_FN constexpr int count() const { return bits / 16 + popcount(static_cast<std::uint32_t>(bits % 16)); }

  /// How many of the low bits lie in the planes before this one.
  TESSERA_FN constexpr int shift(int plane) const {
    int before = 0;
    for (int i = 0; i < plane; ++i) {
      before += next_width(bits - before);
    }
    return before;
  }

  /// The plane at `index`, 0 for the lowest bits.
  TESSERA_FN constexpr bit_plane plane(int index) const { return {next_width(bits - shift(index)), weights_per_lane}; }

  /// The byte at which a plane of a block of `weights` values begins. Planes of one block lie one after the other.
  TESSERA_FN constexpr std::int64_t offset(int plane, std::int64_t weights) const { return weights * shift(plane) / 8; }

  /// Bytes of all planes of a block of `weights` values, a multiple of granularity().
  TESSERA_FN constexpr std::int64_t bytes(std::int64_t weights) const { return weights * bits / 8; }

  /// Blocks hold a multiple of this many values, so that all units are whole.
  TESSERA_FN constexpr int granularity() const {
    int rows = 1;
    for (int i = 0; i < count(); ++i) {
      rows = max(rows, plane(i).rows_per_unit());
    }
    return rows * bit_plane::lanes * weights_per_lane;
  }

 private:
  TESSERA_FN static constexpr int next_width(int left) {
    int width = 16;
    while (width > left) {
      width /= 2;
    }
    return width;
  }
};

namespace detail {

/// Where plane Index's bits of the number at a position are, in a block of `weights` values.
template <bit_planes Layout, int Index>
struct plane_position {
  static constexpr int width = Layout.plane(Index).width;
  static constexpr int shift = Layout.shift(Index);
  static constexpr std::uint32_t mask = (1u << width) - 1;

  std::int64_t byte;
  int bit;  ///< counted within the byte

  TESSERA_FN constexpr plane_position(std::int64_t weights, std::int64_t row, int lane, int weight) {
    constexpr bit_plane plane = Layout.plane(Index);
    std::int64_t const offset = plane.bit_offset(row, lane, weight);
    byte = Layout.offset(Index, weights) + offset / 8;
    bit = static_cast<int>(offset % 8);
  }
};

}  // namespace detail

/// Reads the number at a position of a block, from plane First on. planes: the first byte of the block's planes.
template <bit_planes Layout, int First = 0>
TESSERA_FN constexpr std::uint32_t load_planes(std::uint8_t const* planes, std::int64_t weights, std::int64_t row,
                                               int lane, int weight) {
  if constexpr (First == Layout.count()) {
    return 0;
  } else {
    using position = detail::plane_position<Layout, First>;
    position const at(weights, row, lane, weight);
    std::uint32_t piece = planes[at.byte];
    if constexpr (position::width == 16) {
      piece |= static_cast<std::uint32_t>(planes[at.byte + 1]) << 8;
    }
    piece = (piece >> at.bit) & position::mask;
    return (piece << position::shift) | load_planes<Layout, First + 1>(planes, weights, row, lane, weight);
  }
}

/// Writes the number at a position of a block to its planes, which must be zero there before.
template <bit_planes Layout, int First = 0>
TESSERA_FN constexpr void store_planes(std::uint8_t* planes, std::int64_t weights, std::int64_t row, int lane,
                                       int weight, std::uint32_t value) {
  if constexpr (First < Layout.count()) {
    using position = detail::plane_position<Layout, First>;
    position const at(weights, row, lane, weight);
    std::uint32_t const piece = (value >> position::shift) & position::mask;
    planes[at.byte] = static_cast<std::uint8_t>(planes[at.byte] | (piece << at.bit));
    if constexpr (position::width == 16) {
      planes[at.byte + 1] = static_cast<std::uint8_t>(planes[at.byte + 1] | (piece >> 8));
    }
    store_planes<Layout, First + 1>(planes, weights, row, lane, weight, value);
  }
}

}  // namespace v0
}  // namespace tessera
