// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/unscaled.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/converted.hpp>
#include <tessera/tile/source/fetched_source.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "algorithm/gemm/row_samples.hpp"
#include "support/catch.hpp"
#include "support/log_scalar.hpp"

using namespace tessera;
using namespace tessera_test;

static_assert(FetchedSource<converted<float8_e4m3, bfloat16>, serial_group<128>, staged_tile<bfloat16, 64, 64>>);
static_assert(FetchedSource<converted<log_scalar, bfloat16>, serial_group<128>, staged_tile<bfloat16, 64, 64>>);

namespace {

/// Elements of a matrix converted one by one, and by tiles.
template <class From, class Value>
void check_converted(std::int64_t rows, std::int64_t columns, bool is_turned) {
  CAPTURE(rows, columns, is_turned);
  row_samples<From> const samples(rows, columns, is_turned);
  std::vector<Value> found(static_cast<std::size_t>(rows * columns), store<Value>(77.0F));
  cpu const exec{.threads = 1};
  materialize(exec, converted<From, Value>(samples.view_of(samples.values.data())),
              matrix_view<Value>(found.data(), {rows, columns}));
  exec.wait();
  int wrong = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      auto const value = store<Value>(samples.at(row, column));
      wrong += to_bits(found[static_cast<std::size_t>(row * columns + column)]) != to_bits(value);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("matrices of one scalar are converted to another, whatever the extents and strides", "[host]") {
  for (std::int64_t const columns : {0, 1, 15, 16, 17, 63, 64, 65, 200}) {
    for (bool const is_turned : {false, true}) {
      check_converted<float8_e4m3, bfloat16>(5, columns, is_turned);
      check_converted<float16, bfloat16>(5, columns, is_turned);
      check_converted<float, float8_e5m2>(5, columns, is_turned);
      check_converted<log_scalar, float16>(5, columns, is_turned);
    }
  }
  check_converted<float8_e5m2, float>(65, 64, false);
}

TEST_CASE("converted matrices keep the laws of sources", "[host]") {
  row_samples<float8_e4m3> const samples(11, 40, false);
  CHECK(
      testing::check_laws(converted<float8_e4m3, bfloat16>(samples.view_of(samples.values.data())), serial_group<32>{})
          .text() == "");
}

TEST_CASE("a product takes weights in a scalar of a user's own, made by quantize()", "[host]") {
  cpu const exec{.threads = 1};
  row_samples<float> const weights(33, 70, false);
  row_samples<bfloat16> const inputs(5, 70, false);
  std::vector<log_scalar> codes(33 * 70);
  matrix_view<log_scalar> const matrix(codes.data(), {33, 70});
  using coded = quantized_matrix<unscaled_quantizer<log_scalar>>;
  coded::quantize(exec, {}, weights.view_of(weights.values.data()), matrix, {},
                  workspace(coded::plan(exec, 33, 70), {}));
  std::vector<float> found(5 * 33);
  linear<bfloat16>::forward(exec, inputs.view_of(inputs.values.data()), converted<log_scalar, bfloat16>(matrix),
                            matrix_view<float>(found.data(), {5, 33}));
  exec.wait();
  for (std::int64_t token = 0; token < 5; ++token) {
    for (std::int64_t row = 0; row < 33; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < 70; ++i) {
        float const weight = load(store<bfloat16>(load(store<log_scalar>(weights.at(row, i)))));
        sum += static_cast<double>(inputs.at(token, i)) * static_cast<double>(weight);
      }
      CHECK(found[static_cast<std::size_t>(token * 33 + row)] == Approx(sum).epsilon(1e-4).margin(1e-3));
    }
  }
}
