// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>

#include <tessera/tile/rows/lane_rows.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/row_words_runs.cuh"
#include "tile/rows/part_rows.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Sum, int Rows, int Columns>
std::string wrong_words() {
  return wrong_words_on_device<Sum, Rows, Columns, lane_words<Sum, Rows, Columns>,
                               lane_words<std::int32_t, Rows, Columns>, 32>();
}

}  // namespace

TEST_CASE("every word for rows that lanes have side by side gives what loops give", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_words<float, 1, 32>().empty());
  CHECK(wrong_words<float, 4, 128>().empty());
  CHECK(wrong_words<float, 7, 64>().empty());
  CHECK(wrong_words<std::int32_t, 2, 96>().empty());
}
