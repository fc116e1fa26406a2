// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/laws/tile_mma.hpp>
#include <tessera/tile/row_tile.hpp>

#include "support/catch.hpp"
#include "tile/row_words.hpp"

using namespace tessera;
using tessera::testing::check_operand_law;
using tessera::testing::check_row_laws;

namespace {

using tile = row_tile<float, shape<4, 6, 3>>;
using group = tile::group_type;

struct forgetting_a_column : tile {
  template <class R>
  static void reduce_rows(group const&, R const& reducer, sum_tile const& sums,
                          row_values<typename R::state_type>& states) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 1; column < columns; ++column) {
        reducer.push(states.values[row], sums.values[row][column]);
      }
    }
  }
};
struct forgetting_the_state : tile {
  template <class R>
  static void reduce_rows(group const& g, R const& reducer, sum_tile const& sums,
                          row_values<typename R::state_type>& states) {
    for (auto& state : states.values) {
      state = reducer.identity();
    }
    tile::reduce_rows(g, reducer, sums, states);
  }
};
struct visiting_twice : tile {
  template <class Visit, class... Values>
  static void each_row_once(group const& g, Visit const& visit, Values&... values) {
    each_row(g, visit, values...);
    each_row(g, visit, values...);
  }
};
struct turning_values : tile {
  template <class Visit, class... Values>
  static void each_with_row(group const&, sum_tile& sums, Visit const& visit, Values&... values) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        visit(row, column, sums.values[row][columns - 1 - column], values.values[row]...);
      }
    }
  }
};
struct rows_from_the_last_sum : tile {
  template <class Visit, class... Values>
  static void each_row_of_sums(group const&, sum_tile const& sums, Visit const& visit, Values&... values) {
    for (int row = 0; row < rows; ++row) {
      float turned[columns];
      for (int column = 0; column < columns; ++column) {
        turned[column] = sums.values[row][columns - 1 - column];
      }
      visit(row, turned, values.values[row]...);
    }
  }
};
struct from_the_first_column : tile {
  template <class Next, int First>
  static void as_operand(group const& g, sum_tile const& sums, typename Next::a_tile& a) {
    tile::as_operand<Next, 0>(g, sums, a);
  }
};

/// Merges states that are merged already.
struct merging_twice : tile {
  template <class R>
  static void merge_lanes(group const&, R const& reducer, row_values<typename R::state_type>& states) {
    for (auto& state : states.values) {
      auto const copy = state;
      reducer.merge(state, copy);
    }
  }
};
struct mapping_turned : tile {
  template <class To, class Visit, class... Values>
  static void map_sums(group const&, sum_tile const& sums, typename To::sum_tile& to, Visit const& visit,
                       Values&... values) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        to.values[row][columns - 1 - column] = visit(row, column, sums.values[row][column], values.values[row]...);
      }
    }
  }
};
struct folding_into_states : tile {
  template <class R>
  static void fold_lanes(group const& g, R const& reducer, sum_tile const& sums,
                         row_values<typename R::state_type>& states) {
    reduce_rows(g, reducer, sums, states);
  }
};
struct hiding_one_too_few : tile {
  static void hide_from(group const& g, sum_tile& sums, float hidden, row_values<int> const& ends) {
    each_with_row(
        g, sums, [&](int, int column, float& sum, int end) { sum = column <= end ? sum : hidden; }, ends);
  }
  static void hide_before_diagonal(group const& g, sum_tile& sums, float hidden, int first) {
    each_with_row(g, sums, [&](int row, int column, float& sum) { sum = column + 1 >= first + row ? sum : hidden; });
  }
};
static_assert(RowTile<tile> && RowTile<row_tile<bfloat16, shape<16, 8, 16>>> && RowTile<visiting_twice>);
static_assert(!RowTile<gemm_tile<float, shape<4, 6, 3>>> && !RowWords<gemm_tile<float, shape<4, 6, 3>>>);

struct make_bfloat16 {
  bfloat16 operator()(double number) const { return store<bfloat16>(static_cast<float>(number)); }
};

/// What is wrong with the words of an executor on the host.
template <class Sum, int Rows, int Columns, class Exec>
std::string wrong_words(Exec const& exec) {
  using namespace tessera_test;
  return wrong_words_of<Sum, tile_words<Sum, Rows, Columns>, tile_words<std::int32_t, Rows, Columns>>(exec, Rows,
                                                                                                      Columns);
}

}  // namespace

TEST_CASE("every word for rows gives what loops give, of NaN, infinity and rows of minus infinity, too", "[host]") {
  CHECK(wrong_words<float, 64, 40>(cpu{.threads = 1}).empty());
  CHECK(wrong_words<std::int32_t, 16, 64>(cpu{.threads = 1}).empty());
  CHECK(wrong_words<float, 16, 8>(testing::adversary{.seed = 7}).empty());
  CHECK(wrong_words<float, 8, 64>(testing::adversary{.seed = 9}).empty());
  CHECK(wrong_words<std::int32_t, 64, 16>(testing::adversary{.seed = 8}).empty());
}

TEST_CASE("rows of serial tiles keep the laws, whatever their shape", "[host]") {
  CHECK(check_row_laws<tile>().text().empty());
  CHECK(check_row_laws<row_tile<float, shape<1, 1, 1>>>().text().empty());
  CHECK(check_row_laws<row_tile<bfloat16, shape<16, 24, 16>>>().text().empty());
  CHECK(check_row_laws<row_tile<float16, shape<8, 32, 16>>>().text().empty());
  CHECK(check_row_laws<row_tile<std::int8_t, shape<3, 7, 32>>>().text().empty());
  CHECK(check_operand_law<tile, row_tile<float, shape<4, 5, 3>>>().text().empty());
  CHECK(check_operand_law<row_tile<bfloat16, shape<16, 48, 16>>, row_tile<bfloat16, shape<16, 8, 16>>>({},
                                                                                                       make_bfloat16{})
            .text()
            .empty());
}

TEST_CASE("rows that lose a sum or their state are caught", "[host]") {
  CHECK(check_row_laws<forgetting_a_column>().mentions("reduce_rows pushes each sum once"));
  CHECK(check_row_laws<forgetting_the_state>().mentions("reduce_rows merges a row's sums into its state"));
}

TEST_CASE("lanes that are merged twice and sums that are mapped to other places are caught", "[host]") {
  CHECK(check_row_laws<merging_twice>().mentions("merge_lanes merges what the lanes of a row gathered"));
  CHECK(check_row_laws<mapping_turned>().mentions("map_sums fills the place of each sum"));
}

TEST_CASE("states that are not of the lane's sums alone, and columns that are hidden wrongly, are caught", "[host]") {
  CHECK(check_row_laws<folding_into_states>().mentions("fold_lanes gives the state of the lane's own sums alone"));
  CHECK(check_row_laws<hiding_one_too_few>().mentions("hide_from hides columns from the row's value on"));
  CHECK(check_row_laws<hiding_one_too_few>().mentions("hide_before_diagonal hides columns before the diagonal"));
}

TEST_CASE("rows that are visited twice, and sums that are not where they should be, are caught", "[host]") {
  CHECK(check_row_laws<visiting_twice>().mentions("each_row_once visits every row once"));
  CHECK(check_row_laws<turning_values>().mentions("each_with_row brings the sum of its place"));
  CHECK(check_row_laws<rows_from_the_last_sum>().mentions("each_row_of_sums brings sums in the order of columns"));
}

TEST_CASE("an operand of other columns is caught", "[host]") {
  using next = row_tile<float, shape<4, 5, 3>>;
  CHECK(check_operand_law<from_the_first_column, next>().mentions("sums become the operand that load_a loads"));
}
