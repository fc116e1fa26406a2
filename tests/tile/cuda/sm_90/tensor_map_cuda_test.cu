// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>

#include <tessera/tile/cuda/sm_90/tensor_map.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

TEST_CASE("a matrix that the copy engine cannot address is known as such, and refused with its strides", "[cuda]") {
  alignas(16) static float memory[64];
  auto const maps = [](std::int64_t offset, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                       std::int64_t column_stride) {
    return can_map(matrix_view<float>(memory + offset, {rows, columns}, {row_stride, column_stride}));
  };
  CHECK(maps(0, 3, 5, 8, 1));
  CHECK(maps(4, 1, 5, 5, 1));
  CHECK(maps(0, 3, 1, 4, 7));
  CHECK(!maps(1, 3, 5, 8, 1));
  CHECK(!maps(0, 3, 5, 5, 1));
  CHECK(!maps(0, 3, 5, 1, 8));
  CHECK(!maps(0, 3, 5, 0, 1));
  CHECK(!maps(0, 3, 5, -8, 1));
  CHECK(!maps(0, 0, 5, 8, 1));
  auto const message = [](matrix_view<float> matrix, box_shape box) -> std::string {
    try {
      static_cast<void>(make_tensor_map("linear", matrix, box));
    } catch (value_error const& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  CHECK(message(matrix_view<float>(memory, {3, 5}, {5, 1}), {8, 32}) ==
        "linear: a matrix of 3 x 5 with strides 5 and 1 cannot be copied by boxes: rows must begin at multiples of 16 "
        "bytes");
  CHECK(message(matrix_view<float>(memory, {3, 5}, {8, 1}), {300, 32}) ==
        "linear: a box has 300 rows but takes 1 to 256");
  CHECK(message(matrix_view<float>(memory, {3, 5}, {8, 1}), {8, 33}) ==
        "linear: a row of a box has 132 bytes but takes 16, 32, ... 128");
}
