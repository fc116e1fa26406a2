// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/concepts/projector.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/projector.hpp>

#include "support/catch.hpp"

using tessera::Projector;
using tessera::testing::check_laws;

namespace projector_test {

/// Keeps as many columns as the rank, beginning with the first one that is not zero in all rows.
struct window_projector {
  struct basis_type {
    int first;
    int width;
  };
  static constexpr int rank = 2;

  basis_type fit(float const* rows, std::int64_t count, int width) const {
    for (int column = 0; column + rank <= width; ++column) {
      for (std::int64_t row = 0; row < count; ++row) {
        if (rows[row * width + column] != 0.0F) {
          return {column, width};
        }
      }
    }
    return {0, width};
  }
  void project(basis_type const& basis, float const* row, float* coefficients) const {
    for (int k = 0; k < rank; ++k) {
      coefficients[k] = row[basis.first + k];
    }
  }
  void reconstruct(basis_type const& basis, float const* coefficients, float* row) const {
    for (int column = 0; column < basis.width; ++column) {
      bool const inside = column >= basis.first && column < basis.first + rank;
      row[column] = inside ? coefficients[column - basis.first] : 0.0F;
    }
  }
};

struct halving : window_projector {
  void project(basis_type const& basis, float const* row, float* coefficients) const {
    window_projector::project(basis, row, coefficients);
    coefficients[0] /= 2;
  }
};

struct squaring : window_projector {
  void project(basis_type const& basis, float const* row, float* coefficients) const {
    window_projector::project(basis, row, coefficients);
    coefficients[0] *= coefficients[0];
  }
};

static_assert(Projector<window_projector>);
static_assert(!Projector<window_projector::basis_type>);

std::size_t const width = 5;

/// Rows whose third and fourth columns alone are not zero.
std::vector<float> narrow_rows() {
  std::vector<float> rows(10 * width);
  for (std::size_t r = 0; r < 10; ++r) {
    rows[r * width + 2] = tessera::testing::gauss().value(1, r);
    rows[r * width + 3] = tessera::testing::gauss().value(2, r);
  }
  return rows;
}

}  // namespace projector_test

using namespace projector_test;

TEST_CASE("a user's own projector keeps the laws where its data allow it", "[host]") {
  auto const report = check_laws<window_projector>(narrow_rows(), width, 1e-6);
  INFO(report.text());
  CHECK(report.is_empty());
}

TEST_CASE("a projector that misses where its rows lie is caught", "[host]") {
  auto rows = narrow_rows();
  for (std::size_t r = 0; r < 10; ++r) {
    rows[r * width] = 1.0F;
  }
  auto const report = check_laws<window_projector>(rows, width, 1e-6);
  REQUIRE(report.failures().size() == 1);
  CHECK(report.mentions("rows of at most the rank come back as they were"));
}

TEST_CASE("a projector that shrinks is caught", "[host]") {
  auto const report = check_laws<halving>(narrow_rows(), width, 1e-6);
  CHECK(report.mentions("project undoes reconstruct"));
  CHECK(report.mentions("reconstruction twice is reconstruction once"));
}

TEST_CASE("a projector that is not linear is caught", "[host]") {
  CHECK(check_laws<squaring>(narrow_rows(), width, 1e-6).mentions("project is linear"));
}
