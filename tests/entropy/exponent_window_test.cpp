// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/entropy/exponent_window.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using histogram = std::vector<std::uint64_t>;

std::uint64_t covered_by(exponent_window window, histogram const& counts) {
  std::uint64_t covered = 0;
  for (std::uint32_t exponent = 0; exponent < counts.size(); ++exponent) {
    covered += window.code(exponent) == exponent_window::escape_code ? 0 : counts[exponent];
  }
  return covered;
}

/// The most that any window covers: all bases with all exponents from anywhere.
std::uint64_t most_covered(histogram const& counts) {
  std::uint64_t most = 0;
  for (std::uint32_t base = 0; base + exponent_window::neighbours <= counts.size(); ++base) {
    for (std::uint32_t extra = 0; extra < counts.size(); ++extra) {
      exponent_window const window{static_cast<std::uint8_t>(base), static_cast<std::uint8_t>(extra)};
      most = std::max(most, covered_by(window, counts));
    }
  }
  return most;
}

void check_fit(histogram const& counts) {
  auto const largest = static_cast<std::uint32_t>(counts.size() - 1);
  exponent_window const found = fit_exponent_window(counts.data(), largest);
  REQUIRE(found.fits(largest));
  CHECK(covered_by(found, counts) == most_covered(counts));
  // No window with a lower base is as good.
  for (std::uint32_t base = 0; base < found.base; ++base) {
    CHECK(exponent_window_at(base, counts.data(), largest).covered < covered_by(found, counts));
  }
}

histogram random_histogram(std::size_t exponents, std::uint64_t seed) {
  histogram counts(exponents);
  for (std::size_t i = 0; i < exponents; ++i) {
    std::uint64_t const random = testing::hash(seed, i);
    counts[i] = random % 3 == 0 ? 0 : (random >> 20) % (std::uint64_t{1} << (1 + seed % 40));
  }
  return counts;
}

}  // namespace

TEST_CASE("a window gives each of its exponents a code of its own and all others the escape", "[host]") {
  for (std::uint32_t base : {0u, 1u, 100u, 241u, 242u}) {
    for (std::uint32_t extra = 0; extra < 256; ++extra) {
      exponent_window const window{static_cast<std::uint8_t>(base), static_cast<std::uint8_t>(extra)};
      bool const has_fifteen = extra < base || extra >= base + exponent_window::neighbours;
      std::uint32_t coded = 0;
      for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
        std::uint32_t const code = window.code(exponent);
        if (code == exponent_window::escape_code) {
          continue;
        }
        ++coded;
        CHECK((window.exponent(code) == exponent || !has_fifteen));
      }
      REQUIRE(coded == (has_fifteen ? 15u : 14u));
    }
  }
}

TEST_CASE("a window is contiguous when its exponent from anywhere is the next neighbour", "[host]") {
  CHECK(exponent_window{100, 114}.is_contiguous());
  CHECK_FALSE(exponent_window{100, 113}.is_contiguous());
  CHECK_FALSE(exponent_window{100, 0}.is_contiguous());
  CHECK_FALSE(exponent_window{242, 0}.is_contiguous());
}

TEST_CASE("a window fits a format when none of its exponents is larger than the format's largest", "[host]") {
  CHECK(exponent_window{242, 0}.fits(255));
  CHECK_FALSE(exponent_window{243, 0}.fits(255));
  CHECK(exponent_window{2, 15}.fits(15));
  CHECK_FALSE(exponent_window{3, 15}.fits(15));
  CHECK_FALSE(exponent_window{2, 16}.fits(15));
  CHECK(exponent_window_candidates(255) == 243);
  CHECK(exponent_window_candidates(15) == 3);
}

TEST_CASE("no window leaves fewer exponents without a code than the one that is fitted", "[host]") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    check_fit(random_histogram(16, seed));
    check_fit(random_histogram(32, seed));
  }
  for (std::uint64_t seed = 40; seed < 44; ++seed) {
    check_fit(random_histogram(256, seed));
  }
  check_fit(histogram(16));
  check_fit(histogram(32, 5));
}

TEST_CASE("the exponent from anywhere is the next neighbour unless a more frequent one is outside", "[host]") {
  histogram counts(256);
  for (std::size_t i = 110; i < 125; ++i) {
    counts[i] = 10;
  }
  CHECK(fit_exponent_window(counts.data(), 255u) == exponent_window{110, 124});
  counts[0] = 10;  // no better than the neighbour
  CHECK(fit_exponent_window(counts.data(), 255u) == exponent_window{110, 124});
  counts[0] = 11;
  CHECK(fit_exponent_window(counts.data(), 255u) == exponent_window{110, 0});
  counts[200] = 11;  // ties go to the lower exponent
  CHECK(fit_exponent_window(counts.data(), 255u) == exponent_window{110, 0});
  counts[200] = 12;
  CHECK(fit_exponent_window(counts.data(), 255u) == exponent_window{110, 200});
}

TEST_CASE("escapes are found among eight codes, each in its place", "[host]") {
  for (std::uint32_t code = 0; code < 16; ++code) {
    for (int place = 0; place < 8; ++place) {
      std::uint32_t const expected = code == exponent_window::escape_code ? 1U << (4 * place) : 0;
      CHECK(exponent_window::escapes_among(code << (4 * place)) == expected);
      // Beside neighbours that are nearly escapes.
      std::uint32_t const others = 0xeeeeeeeeU & ~(0xfU << (4 * place));
      CHECK(exponent_window::escapes_among(others | code << (4 * place)) == expected);
    }
  }
  CHECK(exponent_window::escapes_among(0xffffffffU) == 0x11111111U);
}
