// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/map/add_matrix.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/map/soft_capped.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/program/gemm/sum_epilogue.hpp>
#include <tessera/testing/laws/sum_epilogue.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_epilogue_laws;

namespace {

constexpr std::int64_t rows = 5;
constexpr std::int64_t columns = 7;

template <class T>
matrix_view<T> as_matrix(array_view<T> memory) {
  return {memory.data, {rows, columns}};
}

/// Adds each sum to what lies in the result.
struct add_to_result {
  matrix_view<float> result;
  void operator()(std::int64_t row, std::int64_t column, float sum) const { result(row, column) += sum; }
};

struct without_coordinate {
  void operator()(float) const {}
};

static_assert(SumEpilogue<add_to_result> && SumEpilogue<store_sums<bfloat16, plain_sum>>);
static_assert(!SumEpilogue<without_coordinate> && !SumEpilogue<std::vector<float>>);

std::vector<float> some_sums() {
  std::vector<float> sums;
  for (int i = 0; i < rows * columns; ++i) {
    sums.push_back(static_cast<float>(i) * 0.3F - 4.0F);
  }
  return sums;
}

}  // namespace

TEST_CASE("epilogues of the library and a user's own keep the laws", "[host]") {
  std::vector<float> const floats(static_cast<std::size_t>(rows * columns), -99.0F);
  std::vector<bfloat16> const shorts(floats.size(), store<bfloat16>(-99.0F));
  auto const own = [](array_view<float> memory) { return add_to_result{as_matrix(memory)}; };
  CHECK(check_epilogue_laws(floats, own, some_sums(), columns).text() == "");
  auto const stored = [](array_view<bfloat16> memory) {
    return store_sums<bfloat16, soft_capped>{as_matrix(memory), {3.0F}};
  };
  CHECK(check_epilogue_laws(shorts, stored, some_sums(), columns).text() == "");
  auto const accumulated = [](array_view<float> memory) {
    return store_sums<float, add_matrix<float>>{as_matrix(memory), {as_matrix(memory)}};
  };
  CHECK(check_epilogue_laws(floats, accumulated, some_sums(), columns).text() == "");
}
