// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/scaled_sum.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/source/scaled_operand.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

using operand = scaled_operand<symmetric_quantizer<8, 16>>;

}  // namespace

TEST_CASE("what quantized_matrix makes is multiplied as it is, and sums are mapped", "[host]") {
  constexpr std::int64_t rows = 5;
  constexpr std::int64_t columns = 40;
  cpu const exec;
  std::vector<float> values;
  for (std::uint64_t i = 0; i < rows * columns; ++i) {
    values.push_back(testing::gauss{}.value(1, i));
  }
  std::vector<std::int8_t> codes(values.size());
  std::vector<symmetric_params> scales(static_cast<std::size_t>(rows * 3));
  matrix_view<symmetric_params> const by_columns(scales.data(), {rows, 3}, {1, rows});
  quantized_matrix<symmetric_quantizer<8, 16>>::quantize(exec, {}, matrix_view<float>(values.data(), {rows, columns}),
                                                         {codes.data(), {rows, columns}}, by_columns);
  operand const source{{codes.data(), {rows, columns}}, {scales.data(), {rows, 3}, {1, rows}}};
  std::vector<float> result(rows * rows, -1.0F);
  scaled_linear::forward(exec, source, source, scaled_sum{2.0F}, matrix_view<float>(result.data(), {rows, rows}));
  exec.wait();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t other = 0; other < rows; ++other) {
      double sum = 0;
      for (std::int64_t k = 0; k < columns; ++k) {
        sum += 2.0 * static_cast<double>(values[static_cast<std::size_t>(row * columns + k)]) *
               static_cast<double>(values[static_cast<std::size_t>(other * columns + k)]);
      }
      CHECK(static_cast<double>(result[static_cast<std::size_t>(row * rows + other)]) == Approx(sum).margin(0.6));
    }
  }
}

TEST_CASE("a layer of scaled codes refuses extents that do not fit together, with both values", "[host]") {
  std::vector<std::int8_t> const codes(4 * 40);
  std::vector<symmetric_params> const scales(4 * 3);
  std::vector<float> result(16);
  cpu const exec;
  operand const four{{codes.data(), {4, 40}}, {scales.data(), {4, 3}}};
  operand const narrow{{codes.data(), {4, 32}}, {scales.data(), {4, 2}}};
  operand const bare{{codes.data(), {4, 40}}, {scales.data(), {4, 1}}};
  auto const forward = [&](operand const& x, operand const& w, std::int64_t rows, std::int64_t columns) {
    return message_of([&] { scaled_linear::forward(exec, x, w, matrix_view<float>(result.data(), {rows, columns})); });
  };
  CHECK(forward(four, four, 3, 4) == "scaled_linear.forward: the inputs have 4 rows but the outputs have 3");
  CHECK(forward(four, four, 4, 3) == "scaled_linear.forward: the weights have 4 rows but the outputs have 3 columns");
  CHECK(forward(four, narrow, 4, 4) == "scaled_linear.forward: the inputs have 40 columns but the weights have 32");
  CHECK(forward(four, bare, 4, 4) == "scaled_linear.forward: the scales of weights are 4 x 1 but must be 4 x 3");
  CHECK(forward(four, four, 4, 4).empty());
}
