// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Writes rows as coefficients in the few directions that hold most of them: a truncated singular value decomposition.
///
///     tessera::low_rank_projector<16> projector;
///     auto const basis = projector.fit(rows, count, width);           // rows: count x width floats, row after row
///     projector.project(basis, row, coefficients);                     // width floats to 16
///     projector.reconstruct(basis, coefficients, again);               // 16 floats to width
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/concepts/projector.hpp>
#include <tessera/core/error.hpp>
#include <tessera/project/symmetric_eigen.hpp>

namespace tessera {
inline namespace v0 {

/// Orthonormal directions, each in a row: `directions[k * width + column]`.
struct low_rank_basis {
  int width;                      ///< elements of a row
  std::vector<float> directions;  ///< rank x width
};

/// Runs on the host only, in double, for rows of up to some hundreds of columns: the reference for faster models. No
/// projection to `Rank` coefficients has a smaller squared error over the rows that were fitted.
///
/// The directions come in order of falling weight, each with its largest element positive, so the basis is
/// reproducible.
template <int Rank>
struct low_rank_projector {
  static_assert(Rank > 0, "tessera: low_rank_projector needs a rank of at least one");

  using basis_type = low_rank_basis;
  static constexpr int rank = Rank;

  /// Fits a basis. Throws value_error if a row is narrower than the rank, or holds a value that is not finite, or if
  /// rows are null.
  [[nodiscard]] basis_type fit(float const* rows, std::int64_t count, int width) const {
    if (width < Rank) {
      throw value_error("low_rank_projector.fit: rank is " + std::to_string(Rank) + " but rows have " +
                        std::to_string(width) + " columns");
    }
    if (rows == nullptr && count > 0) {
      throw value_error("low_rank_projector.fit: the rows have no memory but there are " + std::to_string(count));
    }
    auto const eigen = detail::decompose_symmetric(gram(rows, count, width), width);
    basis_type basis{width, std::vector<float>(static_cast<std::size_t>(Rank) * static_cast<std::size_t>(width))};
    for (int k = 0; k < Rank; ++k) {
      double const* direction = eigen.vectors.data() + std::ptrdiff_t{k} * width;
      for (int column = 0; column < width; ++column) {
        basis.directions[index(k, width, column)] = static_cast<float>(direction[column]);
      }
    }
    return basis;
  }

  void project(basis_type const& basis, float const* row, float* coefficients) const {
    for (int k = 0; k < Rank; ++k) {
      double sum = 0;
      for (int column = 0; column < basis.width; ++column) {
        sum += double{row[column]} * double{basis.directions[index(k, basis.width, column)]};
      }
      coefficients[k] = static_cast<float>(sum);
    }
  }

  void reconstruct(basis_type const& basis, float const* coefficients, float* row) const {
    for (int column = 0; column < basis.width; ++column) {
      double sum = 0;
      for (int k = 0; k < Rank; ++k) {
        sum += double{coefficients[k]} * double{basis.directions[index(k, basis.width, column)]};
      }
      row[column] = static_cast<float>(sum);
    }
  }

 private:
  static std::size_t index(int row, int width, int column) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(width) + static_cast<std::size_t>(column);
  }

  /// The products of all pairs of columns.
  static std::vector<double> gram(float const* rows, std::int64_t count, int width) {
    std::vector<double> products(static_cast<std::size_t>(width) * static_cast<std::size_t>(width));
    for (std::int64_t r = 0; r < count; ++r) {
      float const* row = rows + r * width;
      for (int i = 0; i < width; ++i) {
        if (!std::isfinite(row[i])) {
          throw value_error("low_rank_projector.fit: row " + std::to_string(r) + ", column " + std::to_string(i) +
                            " is " + std::to_string(row[i]) + ", which is not finite");
        }
        for (int j = 0; j <= i; ++j) {
          products[index(i, width, j)] += double{row[i]} * double{row[j]};
        }
      }
    }
    for (int i = 0; i < width; ++i) {
      for (int j = 0; j < i; ++j) {
        products[index(j, width, i)] = products[index(i, width, j)];
      }
    }
    return products;
  }
};

static_assert(Projector<low_rank_projector<4>>);

}  // namespace v0
}  // namespace tessera
