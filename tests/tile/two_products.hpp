// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A program of row words: (a b^T - the largest of each row) c, of whole numbers, which all executors give exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

using namespace tessera;

/// a: Rows x 16, b: 48 x 16, c: 48 x Columns elements of T.
template <class T, int Rows, int Lanes, int Columns = 24>
struct two_products {
  static constexpr int lanes = Lanes;
  struct scratch_type {
    staged_tile<T, Rows, 16> a;
    staged_tile<T, 48, 16> b;
    staged_tile<T, 48, Columns> c;
  };
  matrix_view<T const> a, b, c;
  matrix_view<float> results;  ///< Rows x Columns
  array_view<float> largest;   ///< of each row of the first product
  array_view<float> sums;      ///< of each row, after the largest was subtracted

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    using first = row_tile<T, shape<Rows, 48, 16>, G>;
    using second = row_tile<T, shape<Rows, Columns, 16>, G>;
    dense<T>{a}.load(group, scratch.a, 0, 0);
    dense<T>{b}.load(group, scratch.b, 0, 0);
    dense<T>{c}.load(group, scratch.c, 0, 0);
    group.sync();
    typename first::sum_tile products;
    first::clear(group, products);
    multiply_staged<first>(group, scratch.a, scratch.b, products);
    typename first::template row_values<float> most;
    typename first::template row_values<float> sum;
    first::each_row(
        group,
        [](int, float& of_most, float& of_sum) {
          of_most = -infinity;
          of_sum = 1000.0F;
        },
        most, sum);
    first::reduce_rows(group, maximum_reducer<float>{}, products, most);
    first::each_with_row(
        group, products, [](int, int, float& product, float of_row) { product -= of_row; }, most);
    first::reduce_rows(group, sum_reducer<float>{}, products, sum);
    first::each_row_once(
        group,
        [&, this](int row, float of_most, float of_sum) {
          largest[row] = of_most;
          sums[row] = of_sum;
        },
        most, sum);
    typename second::sum_tile totals;
    second::clear(group, totals);
    multiply_sums<first, second>(group, products, scratch.c, totals);
    second::store(group, totals, results.data, results.stride(0));
  }
};

/// The operands of two_products, and what it must give.
template <class T, int Rows, int Columns = 24>
struct two_products_problem {
  std::vector<T> a = numbers(Rows * 16, 1);
  std::vector<T> b = numbers(48 * 16, 2);
  std::vector<T> c = numbers(48 * Columns, 3);
  std::vector<float> results = std::vector<float>(Rows * Columns);
  std::vector<float> largest;
  std::vector<float> sums;

  two_products_problem() {
    for (std::size_t row = 0; row < Rows; ++row) {
      std::vector<double> products;
      for (std::size_t column = 0; column < 48; ++column) {
        double product = 0;
        for (std::size_t k = 0; k < 16; ++k) {
          product += number(a[row * 16 + k]) * number(b[column * 16 + k]);
        }
        products.push_back(product);
      }
      double most = products[0];
      for (double const product : products) {
        most = product > most ? product : most;
      }
      double sum = 1000;
      for (std::size_t k = 0; k < 48; ++k) {
        sum += products[k] - most;
        for (std::size_t column = 0; column < Columns; ++column) {
          results[row * Columns + column] += static_cast<float>(
              number(store<T>(static_cast<float>(products[k] - most))) * number(c[k * Columns + column]));
        }
      }
      largest.push_back(static_cast<float>(most));
      sums.push_back(static_cast<float>(sum));
    }
  }

 private:
  static double number(T value) { return static_cast<double>(load(value)); }
  /// Whole numbers from -3 to 3: products are below 256, which bf16 holds exactly.
  static std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
    std::vector<T> found;
    for (std::size_t i = 0; i < count; ++i) {
      found.push_back(store<T>(static_cast<float>(testing::hash(seed, i) % 7) - 3.0F));
    }
    return found;
  }
};

}  // namespace tessera_test
