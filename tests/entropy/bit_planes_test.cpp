// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/entropy/bit_planes.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

template <bit_planes Layout>
struct planes_check {
  static constexpr bit_planes layout = Layout;
  static constexpr int row_weights = bit_plane::lanes * layout.weights_per_lane;
  static constexpr std::uint32_t mask = (1u << layout.bits) - 1;

  /// Calls use(row, lane, weight, i) for each position of a block, i counting them.
  template <class Use>
  static void for_each_position(std::int64_t weights, Use&& use) {
    std::uint64_t i = 0;
    for (std::int64_t row = 0; row < weights / row_weights; ++row) {
      for (int lane = 0; lane < bit_plane::lanes; ++lane) {
        for (int weight = 0; weight < layout.weights_per_lane; ++weight) {
          use(row, lane, weight, i++);
        }
      }
    }
  }

  static std::uint32_t number(std::uint64_t i) {
    return static_cast<std::uint32_t>(testing::hash(layout.bits, i)) & mask;
  }

  static void round_trip(std::int64_t weights) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(layout.bytes(weights)));
    for_each_position(weights, [&](std::int64_t row, int lane, int weight, std::uint64_t i) {
      store_planes<layout>(bytes.data(), weights, row, lane, weight, number(i));
    });
    int wrong = 0;
    for_each_position(weights, [&](std::int64_t row, int lane, int weight, std::uint64_t i) {
      wrong += load_planes<layout>(bytes.data(), weights, row, lane, weight) == number(i) ? 0 : 1;
    });
    CHECK(wrong == 0);
  }

  /// Every bit of the planes belongs to exactly one bit of one number.
  static void partition(std::int64_t weights) {
    std::vector<int> owners(static_cast<std::size_t>(8 * layout.bytes(weights)));
    bool inside = true;
    for_each_position(weights, [&](std::int64_t row, int lane, int weight, std::uint64_t) {
      for (int i = 0; i < layout.count(); ++i) {
        bit_plane const plane = layout.plane(i);
        std::int64_t const first = 8 * layout.offset(i, weights) + plane.bit_offset(row, lane, weight);
        for (std::int64_t bit = first; bit < first + plane.width; ++bit) {
          inside = inside && bit >= 0 && bit < static_cast<std::int64_t>(owners.size());
          owners[static_cast<std::size_t>(inside ? bit : 0)] += 1;
        }
      }
    });
    REQUIRE(inside);
    CHECK(owners == std::vector<int>(owners.size(), 1));
  }

  static void shape() {
    int bits = 0;
    for (int i = 0; i < layout.count(); ++i) {
      bit_plane const plane = layout.plane(i);
      CHECK(is_power_of_two(static_cast<std::uint32_t>(plane.width)));
      CHECK(plane.width <= 16);
      CHECK(layout.shift(i) == bits);
      bits += plane.width;
      // A lane owns whole units of at least four bytes, and only as many rows as that needs.
      CHECK(plane.unit_bytes() >= 4);
      CHECK(plane.rows_per_unit() * layout.weights_per_lane * plane.width == 8 * plane.unit_bytes());
      CHECK((plane.rows_per_unit() == 1 || plane.unit_bytes() == 4));
      CHECK(layout.granularity() % (plane.rows_per_unit() * row_weights) == 0);
    }
    CHECK(bits == layout.bits);
    CHECK(1024 % layout.granularity() == 0);  // blocks of any size are whole
  }

  static void run() {
    INFO(layout.bits << " bits, " << layout.weights_per_lane << " weights a lane");
    shape();
    for (int units : {1, 2, 3}) {
      round_trip(units * layout.granularity());
      partition(units * layout.granularity());
    }
  }
};

template <int... Bits>
void check_widths() {
  (planes_check<bit_planes{Bits, 4}>::run(), ...);
  (planes_check<bit_planes{Bits, 8}>::run(), ...);
  (planes_check<bit_planes{Bits, 16}>::run(), ...);
}

}  // namespace

TEST_CASE("numbers of any width come back from their planes, whose bits they share out without a gap", "[host]") {
  check_widths<1, 2, 3, 4, 8, 11, 24>();
}

TEST_CASE("eleven bits are planes of eight, two and one, and twenty-four are sixteen and eight", "[host]") {
  constexpr bit_planes fp16{11, 8};
  CHECK(fp16.count() == 3);
  CHECK(fp16.plane(0).width == 8);
  CHECK(fp16.plane(1).width == 2);
  CHECK(fp16.plane(2).width == 1);
  CHECK(fp16.offset(2, 1024) == 1280);
  constexpr bit_planes fp32{24, 4};
  CHECK(fp32.count() == 2);
  CHECK(fp32.plane(0).width == 16);
  CHECK(fp32.offset(1, 1024) == 2048);
}

TEST_CASE("planes that are linear have value i at bit i times the width", "[host]") {
  for (int lanes : {4, 8, 16}) {
    for (int width : {1, 2, 4, 8, 16}) {
      bit_plane const plane{width, lanes};
      bool linear = true;
      for (int i = 0; i < 4 * 32 * lanes; ++i) {
        linear = linear && plane.bit_offset(i / (32 * lanes), i / lanes % 32, i % lanes) == std::int64_t{i} * width;
      }
      CHECK(plane.is_linear() == linear);
    }
  }
}

TEST_CASE("bits of planes beyond 2^32 are found", "[host]") {
  constexpr bit_plane plane{8, 8};
  std::int64_t const row = std::int64_t{1} << 32;
  CHECK(plane.bit_offset(row, 3, 5) == row * 2048 + 3 * 64 + 5 * 8);
}
