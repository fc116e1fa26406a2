// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a TileMma whose group runs on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/reference.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// Whole numbers from -3 to 3: their products and sums are exact in every operand type but the smallest.
inline std::vector<double> small_numbers(std::size_t count, std::uint64_t seed) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<double>(hash(seed, i) % 7) - 3.0);
  }
  return numbers;
}

/// `numbers`, `columns` to a row, with `gap` large numbers after each row, which no tile may pick up.
template <class T, class Make>
std::vector<T> spread_rows(std::vector<double> const& numbers, std::size_t columns, std::size_t gap, Make make) {
  std::vector<T> spread;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    spread.push_back(make(numbers[i]));
    if ((i + 1) % columns == 0) {
      spread.insert(spread.end(), gap, make(99.0));
    }
  }
  return spread;
}

/// The transpose of a matrix of `rows` x `columns` numbers, row after row.
inline std::vector<double> turned(std::vector<double> const& numbers, std::size_t rows, std::size_t columns) {
  std::vector<double> found;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    found.push_back(numbers[i % rows * columns + i / rows]);
  }
  return found;
}

}  // namespace detail

/// Makes an operand of a number where nothing else is said.
template <class Operand>
struct convert_to {
  /// The operand nearest to a number.
  Operand operator()(double number) const { return static_cast<Operand>(number); }
};

/// Checks M on `group` with matrices of small whole numbers. `make` makes an operand from a number, for operand types
/// that are not arithmetic types.
template <TileMma M, class Make = convert_to<typename M::operand_type>>
law_report check_laws(typename M::group_type const& group = {}, Make make = {}) {
  law_report report;
  constexpr std::size_t rows = M::rows;
  constexpr std::size_t columns = M::columns;
  constexpr std::size_t depth = M::depth;
  constexpr std::size_t gap = 3;
  auto const a = detail::small_numbers(rows * depth, 1);
  auto const b = detail::small_numbers(depth * columns, 2);
  auto const product = reference_multiply(a, b, rows, columns, depth);
  auto const a_spread = detail::spread_rows<typename M::operand_type>(a, depth, gap, make);
  auto const b_spread = detail::spread_rows<typename M::operand_type>(b, columns, gap, make);
  auto const turned_spread =
      detail::spread_rows<typename M::operand_type>(detail::turned(b, depth, columns), depth, gap, make);

  typename M::a_tile a_tile;
  typename M::b_tile b_tile;
  typename M::sum_tile sums;
  M::load_a(group, a_tile, a_spread.data(), std::int64_t{depth + gap});
  M::load_b(group, b_tile, b_spread.data(), std::int64_t{columns + gap});
  M::clear(group, sums);
  for (int times = 0; times <= 3; ++times) {
    auto const untouched = static_cast<typename M::sum_type>(77);
    std::vector<typename M::sum_type> out(rows * (columns + gap), untouched);
    M::store(group, sums, out.data(), std::int64_t{columns + gap});
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::size_t const row = i / (columns + gap);
      std::size_t const column = i % (columns + gap);
      std::string const name = "row " + std::to_string(row) + ", column " + std::to_string(column);
      if (column >= columns) {
        report.expect(out[i] == untouched, "store touches nothing between the rows", name);
        continue;
      }
      auto const expected = static_cast<typename M::sum_type>(times * product[row * columns + column]);
      report.expect(times != 0 || out[i] == expected, "clear makes the sums zero", name);
      report.expect(times != 1 || out[i] == expected, "multiply is the matrix product", name);
      report.expect(times != 2 || out[i] == expected, "multiply adds to the sums", name);
      report.expect(times != 3 || out[i] == expected, "load_b_transposed loads what load_b does", name);
    }
    if (times == 2) {
      M::load_b_transposed(group, b_tile, turned_spread.data(), std::int64_t{depth + gap});
    }
    M::multiply(group, a_tile, b_tile, sums);
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
