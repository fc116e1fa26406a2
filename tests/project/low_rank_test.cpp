// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <tessera/project/low_rank.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/projector.hpp>

#include "support/catch.hpp"

using tessera::low_rank_projector;
using tessera::testing::check_laws;
using tessera_test::contains;

namespace {

constexpr std::size_t width = 20;
constexpr std::size_t count = 60;

/// Rows whose column j has a spread of 2^-j.
std::vector<float> falling_rows() {
  std::vector<float> rows(count * width);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = std::ldexp(tessera::testing::gauss().value(8, i), -static_cast<int>(i % width));
  }
  return rows;
}

template <int Rank>
double squared_error(std::vector<float> const& rows) {
  low_rank_projector<Rank> const projector;
  auto const basis = projector.fit(rows.data(), count, static_cast<int>(width));
  std::vector<float> coefficients(Rank);
  std::vector<float> again(width);
  double sum = 0;
  for (std::size_t r = 0; r < count; ++r) {
    projector.project(basis, rows.data() + r * width, coefficients.data());
    projector.reconstruct(basis, coefficients.data(), again.data());
    for (std::size_t column = 0; column < width; ++column) {
      double const difference = double{again[column]} - double{rows[r * width + column]};
      sum += difference * difference;
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("the low-rank projector keeps the laws", "[host]") {
  std::vector<float> rows;
  for (std::size_t i = 0; i < count * width; ++i) {
    rows.push_back(tessera::testing::gauss().value(9, i));
  }
  CHECK(check_laws<low_rank_projector<1>>(rows, width, 1e-5).text().empty());
  CHECK(check_laws<low_rank_projector<6>>(rows, width, 1e-5).text().empty());
  CHECK(check_laws<low_rank_projector<20>>(rows, width, 1e-5).text().empty());
}

TEST_CASE("the error is that of the directions left out, and no other columns do better", "[host]") {
  auto const rows = falling_rows();
  auto const eigen = [&rows] {
    std::vector<double> products(width * width);
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t i = 0; i < width; ++i) {
        for (std::size_t j = 0; j < width; ++j) {
          products[i * width + j] += double{rows[r * width + i]} * double{rows[r * width + j]};
        }
      }
    }
    return tessera::detail::decompose_symmetric(products, static_cast<int>(width));
  }();
  double left_out = 0;
  double other_columns = 0;
  for (std::size_t k = 4; k < width; ++k) {
    left_out += eigen.values[k];
    for (std::size_t r = 0; r < count; ++r) {
      other_columns += double{rows[r * width + k]} * double{rows[r * width + k]};
    }
  }
  CHECK(squared_error<4>(rows) == Approx(left_out).epsilon(1e-5));
  CHECK(squared_error<4>(rows) <= other_columns);
  CHECK(squared_error<8>(rows) < squared_error<4>(rows));
  CHECK(squared_error<20>(rows) < 1e-9);
}

TEST_CASE("fewer rows than the rank still have an orthonormal basis", "[host]") {
  low_rank_projector<3> const projector;
  std::vector<float> const row{1, 2, 3, 4};
  auto const basis = projector.fit(row.data(), 1, 4);
  std::vector<float> coefficients(3);
  std::vector<float> again(4);
  projector.project(basis, row.data(), coefficients.data());
  projector.reconstruct(basis, coefficients.data(), again.data());
  CHECK(tessera::testing::detail::is_near(row, again, 1e-6));
  CHECK(std::fabs(coefficients[0]) == Approx(std::sqrt(30.0)));
}

TEST_CASE("rows narrower than the rank are refused with both numbers", "[host]") {
  std::vector<float> const row{1, 2, 3};
  CHECK_THROWS_WITH(low_rank_projector<4>{}.fit(row.data(), 1, 3),
                    "low_rank_projector.fit: rank is 4 but rows have 3 columns");
}

TEST_CASE("a row that is not finite is refused with its index", "[host]") {
  std::vector<float> const rows{1, 2, 3, INFINITY};
  CHECK_THROWS_WITH(low_rank_projector<1>{}.fit(rows.data(), 2, 2), contains("row 1, column 1 is inf"));
}

TEST_CASE("rows without memory are refused", "[host]") {
  CHECK_THROWS_AS(low_rank_projector<1>{}.fit(nullptr, 2, 2), tessera::value_error);
  CHECK_THROWS_WITH(low_rank_projector<1>{}.fit(nullptr, 2, 2),
                    "low_rank_projector.fit: the rows have no memory but there are 2");
}
