// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a TileMma and of a RowTile whose group runs on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>
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

namespace detail {

/// Adds whole numbers and counts them: exact in any order.
template <class T>
struct sum_and_count {
  struct state_type {
    T sum;
    int count;
  };
  using input_type = T;
  TESSERA_FN constexpr state_type identity() const { return {T{}, 0}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    state.sum = static_cast<T>(state.sum + value);
    ++state.count;
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    into.sum = static_cast<T>(into.sum + other.sum);
    into.count += other.count;
  }
};

/// Sums of the tile that are small whole numbers: number row * columns + column of small_numbers().
template <RowTile M>
void set_sums(typename M::group_type const& group, typename M::sum_tile& sums, std::uint64_t seed) {
  M::clear(group, sums);
  typename M::template row_values<int> none;
  M::each_row(
      group, [](int, int& value) { value = 0; }, none);
  auto const numbers = small_numbers(static_cast<std::size_t>(M::rows * M::columns), seed);
  M::each_with_row(
      group, sums,
      [&](int row, int column, typename M::sum_type& sum, int) {
        sum = static_cast<typename M::sum_type>(numbers[static_cast<std::size_t>(row * M::columns + column)]);
      },
      none);
}

/// Checks that states are those of whole rows, which have the sum and the number of their elements.
template <RowTile M, class States>
void check_whole_rows(law_report& report, typename M::group_type const& group, States& states,
                      std::vector<double> const& numbers, char const* law) {
  using state_type = typename sum_and_count<typename M::sum_type>::state_type;
  M::each_row_once(
      group,
      [&](int row, state_type const& state) {
        double expected = 0;
        for (int column = 0; column < M::columns; ++column) {
          expected += numbers[static_cast<std::size_t>(row * M::columns + column)];
        }
        report.expect(static_cast<double>(state.sum) == expected && state.count == M::columns, law,
                      "row " + std::to_string(row));
      },
      states);
}

/// Checks that states that lanes gather from their own sums merge to those of whole rows.
template <RowTile M>
void check_gathered_rows(law_report& report, typename M::group_type const& group, typename M::sum_tile& sums,
                         std::vector<double> const& numbers) {
  using reducer = sum_and_count<typename M::sum_type>;
  using state_type = typename reducer::state_type;
  typename M::template row_values<state_type> gathered;
  M::each_row(
      group, [](int, state_type& state) { state = reducer{}.identity(); }, gathered);
  M::each_with_row(
      group, sums, [](int, int, typename M::sum_type sum, state_type& state) { reducer{}.push(state, sum); }, gathered);
  M::merge_lanes(group, reducer{}, gathered);
  check_whole_rows<M>(report, group, gathered, numbers, "merge_lanes merges what the lanes of a row gathered");
}

/// Checks that fold_lanes gives states that merge_lanes makes those of whole rows, whatever was there before.
template <RowTile M>
void check_folded_rows(law_report& report, typename M::group_type const& group, typename M::sum_tile const& sums,
                       std::vector<double> const& numbers) {
  using reducer = sum_and_count<typename M::sum_type>;
  using state_type = typename reducer::state_type;
  typename M::template row_values<state_type> states;
  M::each_row(
      group,
      [](int row, state_type& state) {
        state = {static_cast<typename M::sum_type>(row), 1000};
      },
      states);
  M::fold_lanes(group, reducer{}, sums, states);
  M::merge_lanes(group, reducer{}, states);
  check_whole_rows<M>(report, group, states, numbers, "fold_lanes gives the state of the lane's own sums alone");
}

/// Checks that hide_from and hide_before_diagonal replace the sums of the columns that they name, and no others.
template <RowTile M>
void check_hidden_sums(law_report& report, typename M::group_type const& group, std::vector<double> const& numbers) {
  using sum_type = typename M::sum_type;
  auto const hidden = static_cast<sum_type>(55);
  for (int const least : {-(1 << 30), -2, 0, 1, M::columns - 1, M::columns, (1 << 30) - 2}) {
    for (bool const is_end : {false, true}) {
      auto const bound = [&](int row) { return is_end ? least + row % 3 : least + row; };
      typename M::sum_tile sums;
      set_sums<M>(group, sums, 3);
      typename M::template row_values<int> bounds;
      M::each_row(
          group, [&](int row, int& value) { value = bound(row); }, bounds);
      if (is_end) {
        M::hide_from(group, sums, hidden, bounds);
      } else {
        M::hide_before_diagonal(group, sums, hidden, least);
      }
      std::vector<sum_type> stored(numbers.size());
      M::store(group, sums, stored.data(), std::int64_t{M::columns});
      for (std::size_t i = 0; i < stored.size(); ++i) {
        auto const row = static_cast<int>(i) / M::columns;
        bool const is_hidden = (static_cast<int>(i) % M::columns >= bound(row)) == is_end;
        report.expect(stored[i] == (is_hidden ? hidden : static_cast<sum_type>(numbers[i])),
                      is_end ? "hide_from hides columns from the row's value on"
                             : "hide_before_diagonal hides columns before the diagonal",
                      "number " + std::to_string(i) + ", value " + std::to_string(bound(row)));
      }
    }
  }
}

/// Checks that map_sums fills each place with what its visit makes of the sum there and the row's value, and that
/// each_with_both visits both sums of a place.
template <RowTile M>
void check_mapped_sums(law_report& report, typename M::group_type const& group, typename M::sum_tile const& sums,
                       std::vector<double> const& numbers) {
  using sum_type = typename M::sum_type;
  typename M::template row_values<int> of_row;
  M::each_row(
      group, [](int row, int& value) { value = row; }, of_row);
  typename M::sum_tile mapped;
  M::template map_sums<M>(
      group, sums, mapped,
      [](int row, int column, sum_type sum, int value) {
        return static_cast<sum_type>(sum + static_cast<sum_type>(value == row ? 10 * column : 1000));
      },
      of_row);
  std::vector<int> visits(numbers.size(), 0);
  M::template each_with_both<M>(
      group, sums, mapped,
      [&](int row, int column, sum_type sum, sum_type& other, int value) {
        auto const at = static_cast<std::size_t>(row * M::columns + column);
        ++visits[at];
        report.expect(value == row && other == static_cast<sum_type>(sum + static_cast<sum_type>(10 * column)),
                      "each_with_both brings the sums of a place", "number " + std::to_string(at));
      },
      of_row);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    report.expect(visits[i] == 1, "each_with_both visits every place once", "number " + std::to_string(i));
  }
  std::vector<sum_type> stored(static_cast<std::size_t>(M::rows * M::columns));
  M::store(group, mapped, stored.data(), std::int64_t{M::columns});
  for (std::size_t i = 0; i < stored.size(); ++i) {
    double const expected = numbers[i] + 10.0 * static_cast<double>(i % static_cast<std::size_t>(M::columns));
    report.expect(static_cast<double>(stored[i]) == expected, "map_sums fills the place of each sum",
                  "number " + std::to_string(i));
  }
}

/// Checks that each_with_row visits every sum with the states of its row, which have counted 1000 and the columns.
template <RowTile M, class States>
void check_sums_with_rows(law_report& report, typename M::group_type const& group, typename M::sum_tile& sums,
                          States& states) {
  using sum_type = typename M::sum_type;
  using state_type = typename sum_and_count<sum_type>::state_type;
  constexpr auto rows = static_cast<std::size_t>(M::rows);
  constexpr auto columns = static_cast<std::size_t>(M::columns);
  std::vector<sum_type> stored(rows * columns);
  M::store(group, sums, stored.data(), std::int64_t{M::columns});
  std::vector<int> visits(rows * columns, 0);
  M::each_with_row(
      group, sums,
      [&](int row, int column, sum_type& sum, state_type const& state) {
        auto const at = static_cast<std::size_t>(row) * columns + static_cast<std::size_t>(column);
        ++visits[at];
        std::string const name = "row " + std::to_string(row) + ", column " + std::to_string(column);
        report.expect(state.count == 1000 + M::columns, "each_with_row brings the row's values", name);
        report.expect(sum == stored[at], "each_with_row brings the sum of its place", name);
      },
      states);
  for (std::size_t i = 0; i < visits.size(); ++i) {
    report.expect(visits[i] == 1, "each_with_row visits every sum once", "number " + std::to_string(i));
  }
}

/// Checks that each_row_of_sums visits each sum of a row once, in the order of columns, with the row's values.
template <RowTile M>
void check_rows_of_sums(law_report& report, typename M::group_type const& group, typename M::sum_tile const& sums,
                        std::vector<double> const& numbers) {
  typename M::template row_values<int> of_row;
  M::each_row(
      group, [](int row, int& value) { value = row; }, of_row);
  std::vector<double> found(numbers.size(), -1.0);
  std::vector<std::size_t> held(static_cast<std::size_t>(M::rows), 0);
  M::each_row_of_sums(
      group, sums,
      [&](int row, auto const& own, int value) {
        report.expect(value == row, "each_row_of_sums brings the row's values", "row " + std::to_string(row));
        auto const at = static_cast<std::size_t>(row);
        for (auto const sum : own) {
          if (held[at] < static_cast<std::size_t>(M::columns)) {
            found[at * static_cast<std::size_t>(M::columns) + held[at]] = static_cast<double>(sum);
          }
          ++held[at];
        }
      },
      of_row);
  for (std::size_t row = 0; row < held.size(); ++row) {
    report.expect(held[row] == static_cast<std::size_t>(M::columns), "each_row_of_sums visits each sum once",
                  "row " + std::to_string(row));
  }
  report.expect(found == numbers, "each_row_of_sums brings sums in the order of columns", "a tile");
}

}  // namespace detail

/// Checks M's rows on `group`.
template <RowTile M>
law_report check_row_laws(typename M::group_type const& group = {}) {
  using sum_type = typename M::sum_type;
  using reducer = detail::sum_and_count<sum_type>;
  law_report report;
  constexpr auto rows = static_cast<std::size_t>(M::rows);
  constexpr auto columns = static_cast<std::size_t>(M::columns);
  auto const numbers = detail::small_numbers(rows * columns, 3);
  typename M::sum_tile sums;
  detail::set_sums<M>(group, sums, 3);

  typename M::template row_values<typename reducer::state_type> states;
  std::vector<int> all(rows, 0);
  std::vector<int> once(rows, 0);
  M::each_row(
      group,
      [&](int row, typename reducer::state_type& state) {
        ++all[static_cast<std::size_t>(row)];
        state = {static_cast<sum_type>(row), 1000};
      },
      states);
  M::each_row_once(
      group, [&](int row, typename reducer::state_type&) { ++once[static_cast<std::size_t>(row)]; }, states);
  M::reduce_rows(group, reducer{}, sums, states);
  M::each_row_once(
      group,
      [&](int row, typename reducer::state_type const& state) {
        double expected = row;
        for (std::size_t column = 0; column < columns; ++column) {
          expected += numbers[static_cast<std::size_t>(row) * columns + column];
        }
        std::string const name = "row " + std::to_string(row);
        report.expect(static_cast<double>(state.sum) == expected, "reduce_rows merges a row's sums into its state",
                      name);
        report.expect(state.count == 1000 + M::columns, "reduce_rows pushes each sum once", name);
      },
      states);
  for (std::size_t row = 0; row < rows; ++row) {
    report.expect(all[row] > 0, "each_row visits every row", "row " + std::to_string(row));
    report.expect(once[row] == 1, "each_row_once visits every row once", "row " + std::to_string(row));
  }

  detail::check_sums_with_rows<M>(report, group, sums, states);
  detail::check_rows_of_sums<M>(report, group, sums, numbers);
  detail::check_gathered_rows<M>(report, group, sums, numbers);
  detail::check_folded_rows<M>(report, group, sums, numbers);
  detail::check_mapped_sums<M>(report, group, sums, numbers);
  detail::check_hidden_sums<M>(report, group, numbers);
  return report;
}

/// Checks that M's sums become the operand of Next that load_a() loads. `make` makes an operand from a number.
template <RowTile M, TileMma Next, class Make = convert_to<typename Next::operand_type>>
law_report check_operand_law(typename M::group_type const& group = {}, Make make = {}) {
  law_report report;
  constexpr auto rows = static_cast<std::size_t>(M::rows);
  constexpr auto depth = static_cast<std::size_t>(Next::depth);
  constexpr auto columns = static_cast<std::size_t>(Next::columns);
  constexpr int first = M::columns - Next::depth;
  typename M::sum_tile sums;
  detail::set_sums<M>(group, sums, 4);
  auto const numbers = detail::small_numbers(static_cast<std::size_t>(M::rows * M::columns), 4);
  std::vector<double> a;
  for (std::size_t i = 0; i < rows * depth; ++i) {
    a.push_back(numbers[i / depth * static_cast<std::size_t>(M::columns) + first + i % depth]);
  }
  auto const b = detail::small_numbers(depth * columns, 5);
  auto const b_elements = detail::spread_rows<typename Next::operand_type>(b, columns, 0, make);
  typename Next::a_tile a_tile;
  typename Next::b_tile b_tile;
  typename Next::sum_tile totals;
  M::template as_operand<Next, first>(group, sums, a_tile);
  Next::load_b(group, b_tile, b_elements.data(), std::int64_t{Next::columns});
  Next::clear(group, totals);
  Next::multiply(group, a_tile, b_tile, totals);
  std::vector<typename Next::sum_type> out(rows * columns);
  Next::store(group, totals, out.data(), std::int64_t{Next::columns});
  auto const product = reference_multiply(a, b, rows, columns, depth);
  for (std::size_t i = 0; i < out.size(); ++i) {
    report.expect(static_cast<double>(out[i]) == product[i], "sums become the operand that load_a loads",
                  "number " + std::to_string(i));
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
