// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A program of row words: 2 a b^T, an integer product, times codes that lie in slots; of whole numbers, which all
/// executors give exactly. Rows are reduced by what lanes gather.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/codes/code_widening.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

using namespace tessera;

/// a: Rows x 32, b: 64 x 32 bytes, codes: 64 channels x 64 slots.
template <class Code, int Rows, int Lanes>
struct coded_product {
  static constexpr int lanes = Lanes;
  struct scratch_type {
    staged_tile<std::int8_t, Rows, 32> a;
    staged_tile<std::int8_t, 64, 32> b;
    staged_tile<Code, 96, 64> codes;
    staged_tile<widened_code<Code>, 32, 64> values[3];
  };
  matrix_view<std::int8_t const> a, b;
  matrix_view<Code const> codes;
  matrix_view<float> results;  ///< Rows x 64
  array_view<float> sums;      ///< of each row of the first product

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    using first = row_tile<std::int8_t, shape<Rows, 64, 32>, G>;
    using numbers = row_tile<widened_code<Code>, shape<Rows, 64, 16>, G>;
    using results_of_part = row_tile<widened_code<Code>, shape<Rows, 32, 16>, G>;
    dense<std::int8_t>{a}.load(group, scratch.a, 0, 0);
    dense<std::int8_t>{b}.load(group, scratch.b, 0, 0);
    dense<Code>{codes}.load(group, scratch.codes, 0, 0);
    group.sync();
    code_widening<Code, G>::widen(group, scratch.codes, scratch.values);
    group.sync();
    typename first::sum_tile products;
    first::clear(group, products);
    multiply_staged<first>(group, scratch.a, scratch.b, products);
    typename first::template row_values<float> sum;
    first::each_row(
        group, [](int, float& of_row) { of_row = 0.0F; }, sum);
    typename numbers::sum_tile doubled;
    first::template map_sums<numbers>(
        group, products, doubled,
        [](int, int, std::int32_t product, float& of_row) {
          of_row += static_cast<float>(product);
          return 2.0F * static_cast<float>(product);
        },
        sum);
    first::merge_lanes(group, sum_reducer<float>{}, sum);
    first::each_row_once(
        group, [&, this](int row, float of_row) { sums[row] = of_row; }, sum);
    typename results_of_part::sum_tile totals[3];  // of which two are wanted: 64 channels
    for (auto& of_part : totals) {
      results_of_part::clear(group, of_part);
    }
    operands_of_sums<numbers, results_of_part> operands;
    operands.make(group, doubled);
    multiply_sums_transposed(group, operands, scratch.values, 2, totals);
    for (int part = 0; part < 2; ++part) {
      results_of_part::each(group, totals[part], [&, this](int row, int column, float total) {
        results(row, 32 * part + column) = total * code_widening<Code, G>::unit();
      });
    }
  }
};

/// The operands of coded_product, and what it must give.
template <class Code, int Rows>
struct coded_product_problem {
  std::vector<std::int8_t> a = bytes(Rows * 32, 1);
  std::vector<std::int8_t> b = bytes(64 * 32, 2);
  std::vector<Code> codes;
  std::vector<float> results;
  std::vector<float> sums;

  coded_product_problem() {
    std::vector<float> numbers;  // tokens x channels
    codes.resize(64 * 64);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i % 64 * 64 + value_slot(i / 64)] = code(i);
      numbers.push_back(number(code(i)));
    }
    for (std::size_t row = 0; row < Rows; ++row) {
      std::vector<double> of_row(64);
      double sum = 0;
      for (std::size_t token = 0; token < 64; ++token) {
        int product = 0;
        for (std::size_t k = 0; k < 32; ++k) {
          product += a[row * 32 + k] * b[token * 32 + k];
        }
        sum += product;
        for (std::size_t channel = 0; channel < 64; ++channel) {
          of_row[channel] += 2.0 * product * static_cast<double>(numbers[token * 64 + channel]);
        }
      }
      sums.push_back(static_cast<float>(sum));
      for (double const total : of_row) {
        results.push_back(static_cast<float>(total));
      }
    }
  }

 private:
  static float number(Code of) { return static_cast<float>(gemm_operand<Code>::widen(of)); }
  /// Codes of all kinds: small ones, so that denormal numbers of e4m3 are met, and both signs.
  static Code code(std::size_t i) {
    auto const bits = testing::hash(3, i);
    if constexpr (std::is_same_v<Code, std::int8_t>) {
      return static_cast<std::int8_t>(bits % 255 - 127);
    } else if constexpr (sizeof(Code) == 1) {
      return {static_cast<std::uint8_t>(bits % 40 | (bits >> 8 & 0x80U))};
    } else {
      return store<Code>(static_cast<float>(bits % 15) - 7.0F);
    }
  }
  /// Whole numbers from -1 to 1: products are so small that their sums with all codes are exact.
  static std::vector<std::int8_t> bytes(std::size_t count, std::uint64_t seed) {
    std::vector<std::int8_t> found;
    for (std::size_t i = 0; i < count; ++i) {
      found.push_back(static_cast<std::int8_t>(testing::hash(seed, i) % 3 - 1));
    }
    return found;
  }
};

}  // namespace tessera_test
