// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A program of every word for rows of sums, which all models must give the same results with, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

using namespace tessera;

/// What a user's own Reducer knows of numbers: five words, exact in any order.
struct census {
  std::int64_t sum_of_bits;
  std::int32_t count;
  std::uint32_t mixed;
  std::int32_t negative;
  friend bool operator==(census const&, census const&) = default;
};
template <class T>
struct census_reducer {
  using state_type = census;
  using input_type = T;
  TESSERA_FN constexpr state_type identity() const { return {0, 0, 0, 0}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    auto const bits = bit_cast<std::uint32_t>(value);
    merge(state, {bits, 1, bits * 2654435761U, bits >> 31 == 0 ? 0 : 1});
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    into = {into.sum_of_bits + other.sum_of_bits, into.count + other.count, into.mixed ^ other.mixed,
            into.negative + other.negative};
  }
};

/// A user's own PairReducer: bits of even and of odd columns, which it can tell apart since it is given pairs.
struct pair_bits {
  std::uint64_t all;
  std::uint32_t pairs;
};
template <class T>
struct pair_bits_reducer {
  using state_type = pair_bits;
  using input_type = T;
  TESSERA_FN constexpr state_type identity() const { return {0, 0}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    state.all += bit_cast<std::uint32_t>(value);
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    into = {into.all + other.all, into.pairs + other.pairs};
  }
  TESSERA_FN constexpr state_type of_pair(input_type first, input_type second) const {
    return {std::uint64_t{bit_cast<std::uint32_t>(first)} + bit_cast<std::uint32_t>(second), 1};
  }
  TESSERA_FN constexpr void push_pair(state_type& state, input_type first, input_type second) const {
    merge(state, of_pair(first, second));
  }
};

/// The sum of floats in the order in which a model adds them, which the lanes of a row must agree upon.
struct ordered_sum_reducer {
  using state_type = float;
  using input_type = float;
  TESSERA_FN constexpr state_type identity() const { return 0.0F; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const { state += value; }
  TESSERA_FN constexpr void merge(state_type& into, state_type other) const { into = into * 1.0009765625F + other; }
};

/// The model of plain arrays and of mma.sync.
template <class Sum, int Rows, int Columns>
struct tile_words {
  template <class G>
  using of = std::conditional_t<std::is_same_v<Sum, float>, row_tile<bfloat16, shape<Rows, Columns, 16>, G>,
                                row_tile<std::int8_t, shape<Rows, Columns, 32>, G>>;
};

/// What the program makes.
template <class Sum>
struct row_results {
  array_view<census> reduced;        ///< of each row, from a state that counts 1000
  array_view<census> folded;         ///< by fold_lanes and merge_lanes
  array_view<std::uint64_t> pairs;   ///< all bits of a row
  array_view<std::uint64_t> listed;  ///< the same by each_row_of_sums
  array_view<Sum> largest;           ///< of a row, and in every other row of the row's number
  array_view<std::int32_t> rows;     ///< how often each_row_once visits a row
  matrix_view<Sum> hidden;           ///< sums that are not hidden, or 77
  matrix_view<std::int32_t> bits;    ///< of sums, plus the row's number
  matrix_view<float> ordered;        ///< in each place what the lane that has it knows of the row's ordered sum
};

/// Words, BitWords: as tile_words, the latter of std::int32_t.
template <class Sum, class Words, class BitWords, int Lanes>
struct row_words_program {
  static constexpr int lanes = Lanes;
  struct scratch_type {};
  matrix_view<Sum const> sums;
  array_view<std::int32_t const> ends;  ///< the columns from which on each row's sums are hidden
  std::int32_t first;                   ///< the first row's first column that is not hidden; a further row's, one more
  row_results<Sum> to;

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    using words = typename Words::template of<G>;
    static_assert(RowWords<words>);
    typename words::sum_tile tile;
    words::each_with_row(group, tile, [&, this](int row, int column, Sum& sum) { sum = sums(row, column); });
    reduce<words>(group, tile);
    fold<words>(group, tile);
    add_rows_of_sums<words>(group, tile);
    change<words, typename BitWords::template of<G>>(group, tile);
  }

 private:
  template <class W, class G>
  TESSERA_FN void reduce(G const& group, typename W::sum_tile const& tile) const {
    typename W::template row_values<census> states;
    typename W::template row_values<Sum> largest;
    W::each_row(
        group,
        [](int row, census& state, Sum& most) {
          state = {0, 1000, 0, 0};
          most = row % 2 == 0 ? static_cast<Sum>(row) : maximum_reducer<Sum>{}.identity();
        },
        states, largest);
    W::reduce_rows(group, census_reducer<Sum>{}, tile, states);
    W::reduce_rows(group, maximum_reducer<Sum>{}, tile, largest);
    W::each_row_once(
        group,
        [&, this](int row, census const& state, Sum most) {
          to.reduced[row] = state;
          to.largest[row] = most;
          to.rows[row] += 1;
        },
        states, largest);
  }
  template <class W, class G>
  TESSERA_FN void fold(G const& group, typename W::sum_tile const& tile) const {
    typename W::template row_values<census> states;
    typename W::template row_values<pair_bits> pairs;
    W::fold_lanes(group, census_reducer<Sum>{}, tile, states);
    W::merge_lanes(group, census_reducer<Sum>{}, states);
    W::fold_lanes(group, pair_bits_reducer<Sum>{}, tile, pairs);
    W::merge_lanes(group, pair_bits_reducer<Sum>{}, pairs);
    W::each_row_once(
        group,
        [&, this](int row, census const& state, pair_bits const& of_pairs) {
          to.folded[row] = state;
          to.pairs[row] = of_pairs.all;
        },
        states, pairs);
  }
  /// Adds up the bits of a row's sums.
  template <class W, class G>
  TESSERA_FN void add_rows_of_sums(G const& group, typename W::sum_tile const& tile) const {
    typename W::template row_values<pair_bits> all;
    W::each_row(
        group, [](int, pair_bits& sum) { sum = pair_bits_reducer<Sum>{}.identity(); }, all);
    W::each_row_of_sums(
        group, tile,
        [](int, auto const& own, pair_bits& sum) {
          for (Sum const one : own) {
            pair_bits_reducer<Sum>{}.push(sum, one);
          }
        },
        all);
    W::merge_lanes(group, pair_bits_reducer<Sum>{}, all);
    W::each_row_once(
        group, [&, this](int row, pair_bits const& sum) { to.listed[row] = sum.all; }, all);
  }
  template <class W, class Bits, class G>
  TESSERA_FN void change(G const& group, typename W::sum_tile& tile) const {
    typename W::template row_values<int> own;
    typename W::template row_values<int> end;
    typename W::template row_values<float> ordered;
    W::each_row(
        group,
        [&, this](int row, int& number, int& of_end, float& sum) {
          number = row;
          of_end = ends[row];
          sum = 0.0F;
        },
        own, end, ordered);
    typename Bits::sum_tile bits;
    W::template map_sums<Bits>(
        group, tile, bits, [](int, int, Sum sum, int row) { return bit_cast<std::int32_t>(sum) + row; }, own);
    Bits::each_with_row(group, bits,
                        [&, this](int row, int column, std::int32_t word) { to.bits(row, column) = word; });
    W::hide_from(group, tile, Sum{77}, end);
    W::hide_before_diagonal(group, tile, Sum{77}, first);
    W::each_with_row(
        group, tile, [](int, int, Sum sum, float& into) { ordered_sum_reducer{}.push(into, static_cast<float>(sum)); },
        ordered);
    W::merge_lanes(group, ordered_sum_reducer{}, ordered);
    W::each_with_row(
        group, tile,
        [&, this](int row, int column, Sum sum, float of_row) {
          to.hidden(row, column) = sum;
          to.ordered(row, column) = of_row;
        },
        ordered);
  }
};

/// Sums with all that is hard: rows of minus infinity, of NaN, with some of both, huge and denormal numbers.
template <class Sum>
std::vector<Sum> hard_sums(int rows, int columns) {
  std::vector<Sum> found;
  for (int i = 0; i < rows * columns; ++i) {
    std::uint64_t const random = testing::hash(static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(i));
    if constexpr (std::is_same_v<Sum, float>) {
      constexpr float nan = std::numeric_limits<float>::quiet_NaN();
      constexpr float infinite = std::numeric_limits<float>::infinity();
      float const usual = (static_cast<float>(random % 2001) - 1000.0F) / 7.0F;
      float const rare[8] = {nan, infinite, -infinite, 1e-42F, -3e38F, usual, usual, usual};
      int const row = i / columns;
      found.push_back(row % 8 == 1   ? -infinite
                      : row % 8 == 2 ? nan
                      : row % 8 == 3 ? rare[random >> 32 & 7]
                      : row % 8 == 4 ? rare[5 + (random >> 32) % 3] - 1e6F
                                     : usual);
    } else {
      found.push_back(static_cast<Sum>(static_cast<std::int32_t>(random)));
    }
  }
  found[0] = std::numeric_limits<Sum>::lowest();
  return found;
}

/// The operands of the program.
template <class Sum>
struct row_words_problem {
  int rows;
  int columns;
  std::vector<Sum> sums = hard_sums<Sum>(rows, columns);
  std::vector<std::int32_t> ends = bounds();
  std::int32_t first = -rows / 2;

  /// Bounds of columns: few, all, and far outside.
  [[nodiscard]] std::vector<std::int32_t> bounds() const {
    std::vector<std::int32_t> found;
    for (int row = 0; row < rows; ++row) {
      auto const random = static_cast<std::int32_t>(testing::hash(1, static_cast<std::uint64_t>(row)) % 1000);
      found.push_back(row % 5 == 0 ? (1 << 30) : row % 5 == 1 ? -(1 << 30) : random % (columns + 3) - 1);
    }
    return found;
  }
};

/// The results of the program, on the host.
template <class Sum>
struct row_words_outcome {
  std::vector<census> reduced;
  std::vector<census> folded;
  std::vector<std::uint64_t> pairs;
  std::vector<std::uint64_t> listed;
  std::vector<Sum> largest;
  std::vector<std::int32_t> rows;
  std::vector<Sum> hidden;
  std::vector<std::int32_t> bits;
  std::vector<float> ordered;

  explicit row_words_outcome(row_words_problem<Sum> const& problem)
      : reduced(static_cast<std::size_t>(problem.rows)),
        folded(reduced.size()),
        pairs(reduced.size()),
        listed(reduced.size()),
        largest(reduced.size()),
        rows(reduced.size()),
        hidden(problem.sums.size()),
        bits(problem.sums.size()),
        ordered(problem.sums.size()) {}
};

/// What a loop makes of the problem; `ordered` is left out.
template <class Sum>
row_words_outcome<Sum> expected_of(row_words_problem<Sum> const& problem) {
  row_words_outcome<Sum> made(problem);
  census_reducer<Sum> const reducer;
  maximum_reducer<Sum> const maximum;
  for (int i = 0; i < problem.rows; ++i) {
    auto const row = static_cast<std::size_t>(i);
    made.largest[row] = i % 2 == 0 ? static_cast<Sum>(i) : maximum.identity();
    made.rows[row] = 1;
    for (int column = 0; column < problem.columns; ++column) {
      auto const at = row * static_cast<std::size_t>(problem.columns) + static_cast<std::size_t>(column);
      Sum const sum = problem.sums[at];
      reducer.push(made.folded[row], sum);
      maximum.push(made.largest[row], sum);
      made.pairs[row] += bit_cast<std::uint32_t>(sum);
      made.listed[row] += bit_cast<std::uint32_t>(sum);
      made.bits[at] = bit_cast<std::int32_t>(sum) + i;
      made.hidden[at] = column < problem.ends[row] && column >= problem.first + i ? sum : Sum{77};
    }
    made.reduced[row] = made.folded[row];
    made.reduced[row].count += 1000;
  }
  return made;
}

/// What differs from what is expected, in words; of `ordered` only that the places of a row agree to the bit.
template <class Sum>
std::string difference(row_words_outcome<Sum> const& found, row_words_problem<Sum> const& problem) {
  row_words_outcome<Sum> const expected = expected_of(problem);
  auto const same = [](auto const& a, auto const& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
  };
  std::string text;
  text += found.reduced == expected.reduced ? "" : "reduce_rows by a user's Reducer; ";
  text += found.folded == expected.folded ? "" : "fold_lanes and merge_lanes; ";
  text += found.pairs == expected.pairs ? "" : "fold_lanes by a user's PairReducer; ";
  text += found.listed == expected.listed ? "" : "each_row_of_sums; ";
  text += found.largest == expected.largest ? "" : "reduce_rows by maximum_reducer; ";
  text += found.rows == expected.rows ? "" : "each_row_once; ";
  text += same(found.hidden, expected.hidden) ? "" : "hide_from and hide_before_diagonal; ";
  text += found.bits == expected.bits ? "" : "map_sums; ";
  bool agree = true;
  for (std::size_t i = 0; i < found.ordered.size(); ++i) {
    std::size_t const first = i / static_cast<std::size_t>(problem.columns) * static_cast<std::size_t>(problem.columns);
    agree = agree && bit_cast<std::uint32_t>(found.ordered[i]) == bit_cast<std::uint32_t>(found.ordered[first]);
  }
  return text + (agree ? "" : "lanes of a row do not agree; ");
}

/// What is wrong with the words of an executor on the host.
template <class Sum, class Words, class BitWords, class Exec>
std::string wrong_words_of(Exec const& exec, int rows, int columns) {
  row_words_problem<Sum> const problem{rows, columns};
  row_words_outcome<Sum> made(problem);
  matrix_view<Sum const> const sums(problem.sums.data(), {rows, columns});
  using program = row_words_program<Sum, Words, BitWords, 32>;
  exec.run(program{sums,
                   {problem.ends},
                   problem.first,
                   {{made.reduced},
                    {made.folded},
                    {made.pairs},
                    {made.listed},
                    {made.largest},
                    {made.rows},
                    {made.hidden.data(), {rows, columns}},
                    {made.bits.data(), {rows, columns}},
                    {made.ordered.data(), {rows, columns}}}},
           1);
  return difference(made, problem);
}

}  // namespace tessera_test
