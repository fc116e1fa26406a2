// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "algorithm/gemm/linear_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a linear layer of 8-bit floats on a GPU is right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_aligned<float8_e4m3, bfloat16>(257, 300, 200);
  check_aligned<float8_e4m3, bfloat16>(1, 1, 1);
  check_aligned<float8_e4m3, bfloat16>(129, 257, 129);
  check_linear<float8_e4m3, bfloat16>(65, 66, 67, {1, 0}, {0, 0});
  check_linear<float8_e4m3, bfloat16>(65, 66, 67, {4, 1}, {0, 0});
  check_linear<float8_e4m3, bfloat16>(65, 66, 67, {8, 5}, {0, 0});
  check_aligned<float8_e5m2, float16>(257, 300, 200);
  check_aligned<float8_e4m3, bfloat16>(1, 16900, 200);  // enough for large tiles
}

TEST_CASE("a linear layer of 8-bit integers on a GPU is exact", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_aligned<std::int8_t, float>(257, 300, 200);
  check_aligned<std::int8_t, float>(257, 16900, 33);
  tessera::cuda const exec;
  for (std::int64_t const gap : {0, 3}) {
    for (std::int64_t const depth : {1, 127, 128, 129, 640}) {
      CAPTURE(gap, depth);
      placement at = aligned<std::int8_t>(depth);
      at.gap += gap;
      auto x = sampled<std::int8_t>(exec, 257, depth, at, 1);
      auto w = sampled<std::int8_t>(exec, 260, depth, at, 2);
      matrix_on_device<std::int32_t> y(exec, 257, 260, {0, gap});
      CHECK(wrong_on_device<std::int8_t>(exec, x, w, y, {}, [&] {
              linear<std::int8_t>::forward(exec, x.on_device(), w.on_device(), y.on_device());
            }) == 0);
    }
  }
}

TEST_CASE("outputs of a linear layer on a GPU may be 8-bit floats", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_aligned<float8_e4m3, float8_e5m2>(140, 270, 64);
}
