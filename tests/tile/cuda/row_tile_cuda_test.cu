// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/row_tile.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "tile/cuda/one_tile.cuh"
#include "tile/cuda/row_words_runs.cuh"
#include "tile/two_products.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Checks that the words give on a GPU what they give on the host, exactly.
template <class T, int Rows, int Lanes, int Columns = 24>
void check_words() {
  CAPTURE(sizeof(T), Rows, Lanes);
  cuda const exec;
  two_products_problem<T, Rows, Columns> const problem;
  auto const a = to_device(exec, problem.a);
  auto const b = to_device(exec, problem.b);
  auto const c = to_device(exec, problem.c);
  auto results = to_device(exec, std::vector<float>(Rows * Columns, 77.0F));
  auto largest = to_device(exec, std::vector<float>(Rows, 77.0F));
  auto sums = to_device(exec, std::vector<float>(Rows, 77.0F));
  two_products<T, Rows, Lanes, Columns> const program{
      {a.data(), {Rows, 16}}, {b.data(), {48, 16}}, {c.data(), {48, Columns}}, {results.data(), {Rows, Columns}},
      largest.view(),         sums.view()};
  exec.run(program, 1);
  CHECK(to_host(exec, largest) == problem.largest);
  CHECK(to_host(exec, sums) == problem.sums);
  CHECK(to_host(exec, results) == problem.results);
}

template <class Sum, int Rows, int Columns, int Lanes>
std::string wrong_words() {
  return wrong_words_on_device<Sum, Rows, Columns, tile_words<Sum, Rows, Columns>,
                               tile_words<std::int32_t, Rows, Columns>, Lanes>();
}

}  // namespace

TEST_CASE("every word for rows of mma.sync gives what loops give", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_words<float, 16, 8, 32>().empty());
  CHECK(wrong_words<float, 64, 40, 128>().empty());
  CHECK(wrong_words<float, 128, 64, 128>().empty());
  CHECK(wrong_words<std::int32_t, 64, 128, 128>().empty());
}

TEST_CASE("every word for eight rows a warp, which are columns of mma.sync, gives what loops give", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_words<float, 8, 16, 32>().empty());
  CHECK(wrong_words<float, 8, 64, 32>().empty());
  CHECK(wrong_words<float, 32, 48, 128>().empty());
  CHECK(wrong_words<std::int32_t, 8, 128, 32>().empty());
  CHECK(wrong_words<std::int32_t, 16, 32, 64>().empty());
}

TEST_CASE("tiles of eight rows a warp are products, wherever operands lie", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_tile<bfloat16, shape<8, 16, 16>, 32, b_layout::rows>();
  check_tile<float16, shape<8, 32, 32>, 32, b_layout::transposed>();
  check_tile<bfloat16, shape<8, 48, 32>, 32, b_layout::staged_rows>();
  check_tile<float16, shape<32, 16, 16>, 128, b_layout::staged_transposed>();
  check_tile<std::int8_t, shape<8, 32, 64>, 32, b_layout::rows>();
  check_tile<std::int8_t, shape<16, 16, 32>, 64, b_layout::staged_transposed>();
}

TEST_CASE("row words on a GPU give what the serial ones give", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_words<bfloat16, 16, 32>();
  check_words<bfloat16, 64, 128>();
  check_words<bfloat16, 64, 32>();
  check_words<float16, 128, 256>();
  check_words<float16, 32, 64>();
  check_words<bfloat16, 8, 32, 32>();
  check_words<float16, 32, 128, 48>();
  check_words<float, 32, 32>();
  check_words<float, 32, 128>();
}
