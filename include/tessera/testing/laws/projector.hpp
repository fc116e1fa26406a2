// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Projector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/concepts/projector.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/merger.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// A fitted Projector with vectors in and out.
template <Projector P>
struct fitted {
  P const& projector;
  typename P::basis_type basis;
  std::size_t width;

  [[nodiscard]] std::vector<float> project(std::vector<float> const& row) const {
    std::vector<float> coefficients(P::rank);
    projector.project(basis, row.data(), coefficients.data());
    return coefficients;
  }
  [[nodiscard]] std::vector<float> reconstruct(std::vector<float> const& coefficients) const {
    std::vector<float> row(width);
    projector.reconstruct(basis, coefficients.data(), row.data());
    return row;
  }
};

template <Projector P>
fitted<P> fit_rows(P const& projector, std::vector<float> const& rows, std::size_t width) {
  auto const count = static_cast<std::int64_t>(rows.size() / width);
  return {projector, projector.fit(rows.data(), count, static_cast<int>(width)), width};
}

inline std::vector<float> row_of(std::vector<float> const& rows, std::size_t width, std::size_t r) {
  std::vector<float> row;
  for (std::size_t column = 0; column < width; ++column) {
    row.push_back(rows[r * width + column]);
  }
  return row;
}

/// Makes as many rows as `rows` has, each a mixture of its first `rank` rows.
inline std::vector<float> rows_of_rank(std::vector<float> const& rows, std::size_t width, std::size_t rank) {
  std::vector<float> mixed(rows.size());
  uniform const weight{-1.0, 1.0};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::size_t const r = i / width;
    double sum = 0;
    for (std::size_t k = 0; k < rank; ++k) {
      sum += double{weight.value(7, r * rank + k)} * double{rows[k * width + i % width]};
    }
    mixed[i] = static_cast<float>(sum);
  }
  return mixed;
}

inline std::vector<float> plus(std::vector<float> const& a, std::vector<float> const& b) {
  std::vector<float> sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.push_back(a[i] + b[i]);
  }
  return sum;
}

}  // namespace detail

/// Checks P on `rows`, which are `width` floats each and more than P::rank of them; `tolerance` is relative to a row's
/// length.
template <Projector P>
law_report check_laws(std::vector<float> const& rows, std::size_t width, double tolerance, P const& projector = {}) {
  law_report report;
  std::size_t const count = rows.size() / width;
  auto const fitted = detail::fit_rows(projector, rows, width);
  gauss const normal;
  for (std::size_t r = 0; r < count; ++r) {
    std::string const name = "row " + std::to_string(r);
    std::vector<float> coefficients;
    for (std::size_t k = 0; k < std::size_t{P::rank}; ++k) {
      coefficients.push_back(normal.value(r, k));
    }
    report.expect(detail::is_near(coefficients, fitted.project(fitted.reconstruct(coefficients)), tolerance),
                  "project undoes reconstruct", name);
    auto const row = detail::row_of(rows, width, r);
    auto const next = detail::row_of(rows, width, (r + 1) % count);
    auto const projected = fitted.project(row);
    auto const once = fitted.reconstruct(projected);
    report.expect(detail::is_near(once, fitted.reconstruct(fitted.project(once)), tolerance),
                  "reconstruction twice is reconstruction once", name);
    report.expect(detail::is_near(fitted.project(detail::plus(row, next)),
                                  detail::plus(projected, fitted.project(next)), tolerance),
                  "project is linear", name);
  }
  auto const simple = detail::rows_of_rank(rows, width, std::size_t{P::rank});
  auto const exact = detail::fit_rows(projector, simple, width);
  for (std::size_t r = 0; r < count; ++r) {
    auto const row = detail::row_of(simple, width, r);
    report.expect(detail::is_near(row, exact.reconstruct(exact.project(row)), tolerance),
                  "rows of at most the rank come back as they were", "row " + std::to_string(r));
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
