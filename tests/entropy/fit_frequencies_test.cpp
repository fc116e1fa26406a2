// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/entropy/fit_frequencies.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using counts_type = std::vector<std::uint64_t>;

template <int Bits = 12>
frequency_table<Bits> fitted(counts_type const& counts) {
  frequency_table<Bits> table;
  fit_frequencies(counts.data(), table);
  return table;
}

/// The bits that a symbol takes more than the entropy of the counts, with an ideal coder for the frequencies.
template <int Bits>
double loss_of(counts_type const& counts, frequency_table<Bits> const& table) {
  double all = 0;
  double loss = 0;
  for (std::uint64_t count : counts) {
    all += static_cast<double>(count);
  }
  for (std::size_t i = 0; i < 256; ++i) {
    double const share = static_cast<double>(counts[i]) / all;
    if (table.frequency[i] > 0 && counts[i] > 0) {
      loss += share * std::log2(share * table.total / table.frequency[i]);
    }
  }
  return loss;
}

/// Counts around a mean, of which `width` is the deviation.
counts_type bell(double width, double scale) {
  counts_type counts(256);
  for (int i = 0; i < 256; ++i) {
    double const distance = (i - 120) / width;
    counts[static_cast<std::size_t>(i)] = static_cast<std::uint64_t>(scale * std::exp(-0.5 * distance * distance));
  }
  return counts;
}

}  // namespace

TEST_CASE("frequencies of any counts are valid", "[host]") {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    counts_type counts(256);
    std::uint64_t const used = 1 + testing::hash(seed, 1000) % 256;
    for (std::size_t i = 0; i < 256; ++i) {
      std::uint64_t const random = testing::hash(seed, i);
      counts[i] = random % 256 < used ? random >> (25 + (random >> 8) % 39) : 0;
    }
    INFO("seed " << seed);
    REQUIRE(fitted(counts).is_valid());
    REQUIRE(fitted<8>(counts).is_valid());
  }
}

TEST_CASE("frequencies are proportional to counts, so that they cost next to nothing", "[host]") {
  for (double width : {1.0, 2.0, 4.0, 8.0, 20.0, 60.0}) {
    CAPTURE(width);
    counts_type const counts = bell(width, 1e6);
    CHECK(loss_of(counts, fitted(counts)) < 0.008);
  }
}

TEST_CASE("a symbol rarer than 2^-17 has no slot, one that is not has one", "[host]") {
  counts_type counts(256);
  counts[7] = (std::uint64_t{1} << 17) - 2;
  counts[8] = 1;  // exactly 2^-17 of the sum with this one
  counts[9] = 1;
  CHECK(fitted(counts).frequency[8] == 1);
  CHECK(fitted(counts).frequency[7] == 4094);
  counts[7] += 1;
  CHECK(fitted(counts).frequency[8] == 0);
}

TEST_CASE("a symbol that occurs alone leaves a slot to its neighbour", "[host]") {
  for (std::size_t symbol : {0U, 1U, 254U, 255U}) {
    counts_type counts(256);
    counts[symbol] = 5;
    auto const table = fitted(counts);
    CHECK(table.is_valid());
    CHECK(table.frequency[symbol] == 4095);
    CHECK(table.frequency[symbol ^ 1] == 1);
  }
}

TEST_CASE("without counts all symbols have the same frequency", "[host]") {
  auto const table = fitted(counts_type(256));
  CHECK(table.is_valid());
  CHECK(table.frequency[0] == 16);
  CHECK(table.frequency[255] == 16);
}
