// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/tile/rows/lane_rows.hpp>

#include "support/catch.hpp"
#include "tile/row_words.hpp"
#include "tile/rows/part_rows.hpp"

using namespace tessera;

static_assert(RowWords<lane_rows<float, 4, 128>> && RowWords<lane_rows<std::int32_t, 1, 5>>);
static_assert(!RowTile<lane_rows<float, 4, 128>>);

namespace {

template <class Sum, int Rows, int Columns>
std::string wrong_words() {
  using tessera_test::lane_words;
  return tessera_test::wrong_words_of<Sum, lane_words<Sum, Rows, Columns>, lane_words<std::int32_t, Rows, Columns>>(
      cpu{.threads = 1}, Rows, Columns);
}

}  // namespace

TEST_CASE("every word for rows that lanes have side by side gives what loops give, on the host too", "[host]") {
  CHECK(wrong_words<float, 1, 32>().empty());
  CHECK(wrong_words<float, 4, 128>().empty());
  CHECK(wrong_words<std::int32_t, 3, 7>().empty());
}

TEST_CASE("the value of a column is that of the row's column", "[host]") {
  using rows = lane_rows<float, 2, 70>;
  serial_group<1> const group;
  rows::sum_tile values;
  rows::each_with_row(group, values,
                      [](int row, int column, float& value) { value = static_cast<float>(100 * row + column); });
  CHECK(rows::at(group, values, 0, 0, 0) == 0.0F);
  CHECK(rows::at(group, values, 1, 0, 31) == 131.0F);
  CHECK(rows::at(group, values, 1, 32, 4) == 136.0F);
  CHECK(rows::at(group, values, 0, 64, 5) == 69.0F);
}
