// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/detail/transpose_rows.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEMPLATE_TEST_CASE("rows are written transposed, with zeros behind them, from any strides", "[host]", float, bfloat16) {
  for (std::int64_t const rows : {0, 1, 63, 65}) {
    for (std::int64_t const columns : {1, 64, 130}) {
      for (std::int64_t const step : {1, 3}) {
        std::int64_t const stride = columns * step + 1;
        std::int64_t const padded = align_up(rows, std::int64_t{64});
        std::vector<TestType> from(static_cast<std::size_t>((rows + 1) * stride), store<TestType>(1000.0F));
        std::vector<TestType> to(static_cast<std::size_t>(columns * padded + 1), store<TestType>(2000.0F));
        matrix_view<TestType> const given(from.data(), {rows, columns}, {stride, step});
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            given(i, j) = store<TestType>(static_cast<float>((i * 31 + j * 7) % 255 - 100));
          }
        }
        detail::transpose_rows<TestType> const program{given, {to.data(), {columns, padded}}};
        testing::adversary{.seed = 3}.run(program, program.groups());
        int wrong = 0;
        for (std::int64_t i = 0; i < padded; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            float const expected = i < rows ? static_cast<float>(load(given(i, j))) : 0.0F;
            wrong += static_cast<float>(load(to[static_cast<std::size_t>(j * padded + i)])) == expected ? 0 : 1;
          }
        }
        CHECK(wrong == 0);
        CHECK(static_cast<float>(load(to.back())) == 2000.0F);
      }
    }
  }
}
