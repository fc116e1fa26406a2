// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
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

TEST_CASE("a map that a thread remembers is the one that the driver makes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no copy engine for tensors");
    return;
  }
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 20) == cudaSuccess);
  auto* const first = static_cast<float*>(memory);
  struct request {
    matrix_view<float> matrix;
    box_shape box;
    box_swizzle swizzle;
  };
  request const one{{first, {64, 256}, {256, 1}}, {16, 16}, box_swizzle::bytes_128};
  // Each differs from the first in one thing.
  std::vector<request> requests{one,
                                {{first + 4, {64, 256}, {256, 1}}, {16, 16}, box_swizzle::bytes_128},
                                {{first, {65, 256}, {256, 1}}, {16, 16}, box_swizzle::bytes_128},
                                {{first, {64, 255}, {256, 1}}, {16, 16}, box_swizzle::bytes_128},
                                {{first, {64, 256}, {512, 1}}, {16, 16}, box_swizzle::bytes_128},
                                {{first, {64, 256}, {256, 1}}, {17, 16}, box_swizzle::bytes_128},
                                {{first, {64, 256}, {256, 1}}, {16, 8}, box_swizzle::bytes_128},
                                {{first, {64, 256}, {256, 1}}, {16, 16}, box_swizzle::bytes_64}};
  for (int i = 0; i < 300; ++i) {  // more than are remembered
    requests.push_back({{first + 256 * i, {64, 256}, {256, 1}}, {16, 16}, box_swizzle::bytes_128});
  }
  auto const is_right = [](auto matrix, box_shape box, box_swizzle swizzle) {
    tensor_map const found = make_tensor_map("test", matrix, box, swizzle);
    tensor_map const made = detail::encode_tensor_map("test", matrix, box, swizzle);
    return std::memcmp(&found, &made, sizeof made) == 0;
  };
  int wrong = 0;
  for (int turn = 0; turn < 3; ++turn) {
    for (request const& next : requests) {
      for (request const& of : {next, one, next}) {
        matrix_view<std::int32_t> const integers(reinterpret_cast<std::int32_t*>(of.matrix.data),
                                                 {of.matrix.extent(0), of.matrix.extent(1)},
                                                 {of.matrix.stride(0), of.matrix.stride(1)});
        wrong += is_right(of.matrix, of.box, of.swizzle) ? 0 : 1;
        wrong += is_right(integers, of.box, of.swizzle) ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
  for (int turn = 0; turn < 2; ++turn) {  // what was refused is refused again
    CHECK_THROWS_AS(make_tensor_map("test", one.matrix, {300, 16}), value_error);
    CHECK_THROWS_AS(make_tensor_map("test", one.matrix, {16, 65536 + 16}), value_error);
    CHECK_THROWS_AS(make_tensor_map("test", matrix_view<float>(first + 1, {64, 256}, {256, 1}), {16, 16}), value_error);
  }
  CHECK(cudaFree(memory) == cudaSuccess);
}
