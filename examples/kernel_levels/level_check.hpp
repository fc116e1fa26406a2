// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs a level on any executor and compares it with a product in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/check.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/testing/generators.hpp>

#include "../support/text_table.hpp"
#include "ring_level.hpp"

namespace tessera_examples {

/// The extents and operands of a product, on the host.
struct product_data {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  std::vector<bfloat16> a;
  std::vector<bfloat16> b;

  static product_data made(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    product_data data{rows, columns, depth, std::vector<bfloat16>(static_cast<std::size_t>(rows * depth)),
                      std::vector<bfloat16>(static_cast<std::size_t>(columns * depth))};
    testing::fill(testing::gauss{}, 1, data.a.data(), data.a.size());
    testing::fill(testing::gauss{}, 2, data.b.data(), data.b.size());
    return data;
  }
};

/// The largest error of `found` in units of its bound. Sums in fp32, in whatever order, of products whose magnitudes
/// add up to m are off by no more than (8 + depth / 4) 2^-24 m; rounding to bf16 by 2^-8 of the result. NaN if an
/// element is NaN.
inline double error_of(product_data const& data, std::vector<bfloat16> const& found) {
  double worst = 0;
  for (std::int64_t row = 0; row < data.rows; ++row) {
    for (std::int64_t column = 0; column < data.columns; ++column) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < data.depth; ++k) {
        double const product = static_cast<double>(load(data.a[static_cast<std::size_t>(row * data.depth + k)])) *
                               static_cast<double>(load(data.b[static_cast<std::size_t>(column * data.depth + k)]));
        sum += product;
        magnitude += std::fabs(product);
      }
      double const allowed = std::ldexp(8.0 + static_cast<double>(data.depth) / 4, -24) * magnitude +
                             std::ldexp(1.01, -8) * std::fabs(sum) + 1e-30;
      double const got = static_cast<double>(load(found[static_cast<std::size_t>(row * data.columns + column)]));
      double const error = std::fabs(got - sum) / allowed;
      worst = std::isnan(worst) || error <= worst ? worst : error;
    }
  }
  return worst;
}

/// A product in an executor's memory. Results are NaN at first.
template <class Executor>
class product_there {
 public:
  product_there(Executor const& exec, product_data const& data)
      : a_(exec, data.rows * data.depth),
        b_(exec, data.columns * data.depth),
        c_(exec, data.rows * data.columns),
        whole_{{a_.data(), {data.rows, data.depth}},
               {b_.data(), {data.columns, data.depth}},
               {c_.data(), {data.rows, data.columns}}} {
    exec.copy(data.a, a_);
    exec.copy(data.b, b_);
    exec.copy(std::vector<bfloat16>(static_cast<std::size_t>(c_.size()), store<bfloat16>(std::nanf(""))), c_);
    exec.wait();
  }

  [[nodiscard]] product const& whole() const { return whole_; }
  [[nodiscard]] std::vector<bfloat16> result(Executor const& exec) const {
    std::vector<bfloat16> copy(static_cast<std::size_t>(c_.size()));
    exec.copy(c_.view(), copy);
    exec.wait();
    return copy;
  }

 private:
  buffer<bfloat16> a_;
  buffer<bfloat16> b_;
  buffer<bfloat16> c_;
  product whole_;
};

/// The products that are checked: extents of many tiles, and extents that are multiples of nothing. Depths are
/// multiples of 8, so that rows are aligned, but for the last, which is for the levels that take any depth.
inline std::vector<product_data> products_to_check() {
  return {product_data::made(256, 256, 512), product_data::made(1, 1, 8), product_data::made(127, 129, 72),
          product_data::made(130, 300, 200), product_data::made(65, 63, 33)};
}

/// Checks one level, with a row of the table for each product. Returns whether all were right.
template <class Executor, class Level>
bool check_level(Executor const& exec, std::string const& device, product_data const& data, Level const& level,
                 product_there<Executor> const& there, text_table& table) {
  exec.run(level, level.groups());
  double const error = error_of(data, there.result(exec));
  bool const is_right = error <= 1;
  table.add({Level::name, device, std::to_string(data.rows), std::to_string(data.columns), std::to_string(data.depth),
             fixed(error, 3), is_right ? "ok" : "WRONG"});
  return is_right;
}

/// Checks the levels that every executor has.
template <class Executor>
bool check_portable_levels(Executor const& exec, std::string const& device, text_table& table) {
  bool right = true;
  for (product_data const& data : products_to_check()) {
    product_there<Executor> const plain(exec, data);
    right = check_level(exec, device, data, plain_level{plain.whole()}, plain, table) && right;
    product_there<Executor> const tiled(exec, data);
    right = check_level(exec, device, data, tiled_level{{tiled.whole()}}, tiled, table) && right;
    product_there<Executor> const pipelined(exec, data);
    if (has_aligned_rows(pipelined.whole().a) && has_aligned_rows(pipelined.whole().b)) {
      right = check_level(exec, device, data, fetched_level{{pipelined.whole()}}, pipelined, table) && right;
      product_there<Executor> const ring(exec, data);
      right = check_level(exec, device, data, ring_level{{ring.whole()}}, ring, table) && right;
    }
  }
  return right;
}

}  // namespace tessera_examples
