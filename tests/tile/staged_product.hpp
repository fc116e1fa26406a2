// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A program of products of staged tiles, of whole numbers, which all executors give exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

using namespace tessera;

/// 2 a b^T for a of m x 3 k and b of n x 3 k: once of b, and once of its columns as rows.
template <class T, class Shape, int Lanes>
struct staged_product {
  static constexpr int lanes = Lanes;
  static constexpr int depth = 3 * Shape::k;
  struct scratch_type {
    staged_tile<T, Shape::m, depth> a;
    staged_tile<T, Shape::n, depth> b;
    staged_tile<T, depth, Shape::n> b_rows;
  };
  matrix_view<T const> a;
  matrix_view<T const> b;
  matrix_view<float> sums;

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    using tile = gemm_tile<T, Shape, G>;
    dense<T>{a}.load(group, scratch.a, 0, 0);
    dense<T>{b}.load(group, scratch.b, 0, 0);
    dense<T>{b.transposed()}.load(group, scratch.b_rows, 0, 0);
    group.sync();
    typename tile::sum_tile total;
    tile::clear(group, total);
    multiply_staged<tile>(group, scratch.a, scratch.b, total);
    multiply_staged_rows<tile>(group, scratch.a, scratch.b_rows, total);
    tile::store(group, total, sums.data, sums.stride(0));
  }
};

/// The same product by multiply_words: a b^T twice, where the sources have words, and 77 where they do not.
template <class T, class Shape, int Lanes>
struct product_of_words {
  static constexpr int lanes = Lanes;
  struct scratch_type {
    staged_tile<T, Shape::m, Shape::k> a[3];
    staged_tile<T, Shape::n, Shape::k> b[3];
  };
  matrix_view<T const> a;
  matrix_view<T const> b;
  matrix_view<float> sums;

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    using tile = gemm_tile<T, Shape, G>;
    typename tile::sum_tile total;
    tile::clear(group, total);
    bool is_done = multiply_words<tile>(group, dense<T>{a}, dense<T>{b}, {0, 0}, scratch, total);
    group.sync();
    is_done = multiply_words<tile>(group, dense<T>{a}, dense<T>{b}, {0, 0}, scratch, total) && is_done;
    if (is_done) {
      tile::store(group, total, sums.data, sums.stride(0));
    }
  }
};

/// Its operands, of small whole numbers, and its sums.
template <class T, class Shape>
struct staged_product_problem {
  static constexpr int depth = 3 * Shape::k;
  std::vector<T> a = whole_numbers(1, Shape::m);
  std::vector<T> b = whole_numbers(2, Shape::n);
  std::vector<float> sums;

  staged_product_problem() {
    for (std::size_t row = 0; row < Shape::m; ++row) {
      for (std::size_t column = 0; column < Shape::n; ++column) {
        float sum = 0;
        for (std::size_t k = 0; k < depth; ++k) {
          sum += 2 * load(a[row * depth + k]) * load(b[column * depth + k]);
        }
        sums.push_back(sum);
      }
    }
  }

 private:
  static std::vector<T> whole_numbers(std::uint64_t seed, int rows) {
    std::vector<T> numbers;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(rows) * depth; ++i) {
      numbers.push_back(store<T>(static_cast<float>(testing::hash(seed, i) % 9) - 4.0F));
    }
    return numbers;
  }
};

}  // namespace tessera_test
