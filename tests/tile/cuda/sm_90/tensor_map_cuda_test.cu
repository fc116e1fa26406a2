// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

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
  if (tessera_test::compute_capability_major() < 9) {
    SUCCEED("the device has no TMA");
    return;
  }
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 20) == cudaSuccess);
  auto* const first = static_cast<char*>(memory);
  detail::tensor_map_request const one{
      first, {256, 64, 1}, {1024, 0}, {32, 16}, 2, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_SWIZZLE_128B};
  std::vector<detail::tensor_map_request> requests(12, one);  // each differs from the first in one thing
  requests[1].first = first + 16;
  requests[2].extents[0] = 128;
  requests[3].extents[1] = 65;
  requests[4].strides[0] = 2048;
  requests[5].box[0] = 16;
  requests[6].box[1] = 32;
  requests[7].type = CU_TENSOR_MAP_DATA_TYPE_INT32;
  requests[8].box[0] = 16;
  requests[8].swizzle = CU_TENSOR_MAP_SWIZZLE_64B;
  requests[9].dimensions = 3;
  requests[9].strides[1] = 65536;
  requests[10].dimensions = 3;
  requests[10].strides[1] = 131072;
  requests[11].dimensions = 3;
  requests[11].extents[2] = 2;
  requests[11].strides[1] = 65536;
  for (int i = 0; i < 300; ++i) {  // more than are remembered
    requests.push_back(one);
    requests.back().first = first + 1024 * i;
  }
  int wrong = 0;
  for (int turn = 0; turn < 3; ++turn) {
    for (detail::tensor_map_request const& of : requests) {
      for (detail::tensor_map_request const& other : {of, one, of}) {
        tensor_map found;
        tensor_map made;
        REQUIRE(detail::find_tensor_map("test", other, found) == CUDA_SUCCESS);
        REQUIRE(detail::encode_tensor_map("test", other, made) == CUDA_SUCCESS);
        wrong += std::memcmp(&found, &made, sizeof made) == 0 ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
  detail::tensor_map_request bad = one;
  bad.first = first + 1;  // the driver takes multiples of 16
  tensor_map untouched;
  std::memset(&untouched, 7, sizeof untouched);
  tensor_map const before = untouched;
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(detail::find_tensor_map("test", bad, untouched) != CUDA_SUCCESS);
    CHECK(std::memcmp(&untouched, &before, sizeof before) == 0);
  }
  CHECK(cudaFree(memory) == cudaSuccess);
}
