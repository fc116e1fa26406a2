// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/tile/row_chunks.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

struct alignas(16) words {
  float values[64] = {};
};

}  // namespace

TEST_CASE("chunks of rows are loaded from wherever they lie, with zeros beyond the last column", "[host]") {
  words memory;
  for (int i = 0; i < 64; ++i) {
    memory.values[i] = static_cast<float>(i + 1);
  }
  for (std::int64_t const offset : {0, 1}) {
    for (std::int64_t const stride : {12, 11}) {
      CAPTURE(offset, stride);
      row_chunks<float const> const rows{matrix_view<float const>(memory.values + offset, {4, 10}, {stride, 1})};
      CHECK(rows.is_aligned() == (offset == 0 && stride == 12));
      CHECK(rows.is_whole(4) == rows.is_aligned());
      CHECK_FALSE(rows.is_whole(2));
      CHECK_FALSE(rows.is_whole(8));
      for (std::int64_t column : {0, 3, 4, 8, 9}) {
        auto const chunk = rows.load(2, column);
        for (int i = 0; i < 4; ++i) {
          CHECK(chunk.values[i] == (column + i < 10 ? static_cast<float>(offset + 2 * stride + column + i + 1) : 0.0F));
        }
      }
    }
  }
}

TEST_CASE("chunks of rows are stored wherever they lie, and nothing beyond the last column", "[host]") {
  for (bool const is_turned : {false, true}) {
    for (std::int64_t const column : {0, 3, 4, 8}) {
      CAPTURE(is_turned, column);
      words memory;
      auto const matrix = is_turned ? matrix_view<float>(memory.values, {10, 4}).transposed()
                                    : matrix_view<float>(memory.values, {4, 10}, {12, 1});
      row_chunks<float>{matrix}.store(1, column, {{5.0F, 6.0F, 7.0F, 8.0F}});
      float sum = 0;
      for (float const value : memory.values) {
        sum += value;
      }
      float expected = 0;
      for (std::int64_t i = 0; i < 4 && column + i < 10; ++i) {
        CHECK(matrix(1, column + i) == static_cast<float>(5 + i));
        expected += static_cast<float>(5 + i);
      }
      CHECK(sum == expected);
    }
  }
}
