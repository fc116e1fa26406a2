// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Matrices of random values, and reductions of their rows on any executor.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"

namespace tessera_test {

using namespace tessera;

/// A matrix in which rows follow each other, or, if it is turned, columns do.
template <class T>
struct row_samples {
  std::int64_t rows;
  std::int64_t columns;
  bool is_turned;
  std::vector<T> values;

  row_samples(std::int64_t row_count, std::int64_t column_count, bool turned, double sigma = 3.0)
      : rows(row_count),
        columns(column_count),
        is_turned(turned),
        values(static_cast<std::size_t>(row_count * column_count)) {
    testing::gauss const normal{.sigma = sigma};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = store<T>(static_cast<float>(normal.value(11, i)));
    }
  }
  [[nodiscard]] matrix_view<T const> view_of(T const* data) const {
    return is_turned ? matrix_view<T const>(data, {columns, rows}).transposed()
                     : matrix_view<T const>(data, {rows, columns});
  }
  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const {
    return static_cast<float>(load(view_of(values.data())(row, column)));
  }
};

/// The values of a matrix in an executor's memory.
template <Executor Exec, class T>
buffer<T> sent(Exec const& exec, std::vector<T> const& values) {
  buffer<T> made(exec, static_cast<std::int64_t>(values.size()));
  exec.copy(values, made.view());
  exec.wait();
  return made;
}
template <Executor Exec, class T>
std::vector<T> fetched(Exec const& exec, buffer<T> const& values) {
  std::vector<T> found(static_cast<std::size_t>(values.size()));
  exec.copy(values.view(), array_view<T>(found));
  exec.wait();
  return found;
}

/// The states of rows, of which the executor's memory held rubbish.
template <Reducer R, Executor Exec, class T>
std::vector<typename R::state_type> reduced(Exec const& exec, row_samples<T> const& samples) {
  using reduction = row_reduction<R>;
  auto const values = sent(exec, samples.values);
  auto const plan = reduction::plan(exec, samples.rows, samples.columns);
  auto memory = sent(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  buffer<typename R::state_type> states(exec, samples.rows);
  reduction::reduce(exec, R{}, samples.view_of(values.data()), states.view(), workspace(plan, memory));
  return fetched(exec, states);
}

template <class T, Executor Exec>
void check_log_sum_exps(Exec const& exec, std::int64_t rows, std::int64_t columns, bool is_turned) {
  CAPTURE(rows, columns, is_turned);
  row_samples<T> const samples(rows, columns, is_turned);
  auto const found = reduced<lse_reducer<float>>(exec, samples);
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t column = 0; column < columns; ++column) {
      sum += std::exp(static_cast<double>(samples.at(row, column)));
    }
    float const value = lse_reducer<float>{}.value(found[static_cast<std::size_t>(row)]);
    if (columns == 0) {
      CHECK(value == -infinity);
    } else {
      CHECK(std::abs(static_cast<double>(value) - std::log(sum)) < 2e-5);
    }
  }
}

template <Executor Exec>
void check_arg_max(Exec const& exec, std::int64_t rows, std::int64_t columns) {
  CAPTURE(rows, columns);
  row_samples<float> samples(rows, columns, false);
  for (float& value : samples.values) {
    value = std::floor(value);  // so that several are the largest
  }
  auto const found = reduced<arg_max_reducer<float>>(exec, samples);
  for (std::int64_t row = 0; row < rows; ++row) {
    auto const first = samples.values.begin() + row * columns;
    auto const largest = std::max_element(first, first + columns);
    CHECK(found[static_cast<std::size_t>(row)].value == *largest);
    CHECK(found[static_cast<std::size_t>(row)].index == largest - first);
  }
}

}  // namespace tessera_test
