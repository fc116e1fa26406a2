// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/reducer.hpp>
#include <tessera/testing/reference.hpp>
#include <tessera/tile/gemm_operand.hpp>

#include "support/catch.hpp"

using tessera::float16;
using tessera::float8_e4m3;
using tessera::float8_e5m2;
using tessera::online_softmax;
using tessera::scaled_float_quantizer;
using tessera::symmetric_quantizer;
using tessera::testing::check_laws;
using tessera::testing::is_close;

namespace {

float const infinite = std::numeric_limits<float>::infinity();

/// States mean the same when their values do.
template <class T>
struct same_value {
  double tolerance;
  bool operator()(tessera::softmax_state<T> const& a, tessera::softmax_state<T> const& b) const {
    online_softmax<T> const softmax;
    return is_close(softmax.value(a), softmax.value(b), tolerance);
  }
};

std::vector<float> scores(float spread, std::uint64_t seed = 4, std::uint64_t count = 300) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < count; ++i) {
    values.push_back(spread * tessera::testing::gauss().value(seed, i));
  }
  return values;
}

struct pair_of_results {
  double lse;
  double mean;
};

/// Pieces of `length` scores; the value of a score is its index.
template <class T>
pair_of_results in_pieces(std::vector<float> const& row, std::size_t length, T* greatest_factor = nullptr) {
  online_softmax<T> const softmax;
  auto state = softmax.identity();
  T total = 0;
  for (std::size_t first = 0; first < row.size(); first += length) {
    std::size_t const last = std::min(first + length, row.size());
    T largest = -std::numeric_limits<T>::infinity();
    for (std::size_t i = first; i < last; ++i) {
      largest = std::max(largest, static_cast<T>(row[i]));
    }
    T const factor = softmax.turn(state, largest);
    if (greatest_factor != nullptr) {
      *greatest_factor = std::max(*greatest_factor, factor);
    }
    total *= factor;
    for (std::size_t i = first; i < last; ++i) {
      T const weight = softmax.weight(state, static_cast<T>(row[i]));
      CHECK(!(weight > 1));
      state.sum += weight;
      total += weight * static_cast<T>(i);
    }
  }
  return {static_cast<double>(softmax.value(state)), static_cast<double>(total / state.sum)};
}

pair_of_results by_the_formula(std::vector<float> const& row) {
  double largest = -std::numeric_limits<double>::infinity();
  for (float score : row) {
    largest = std::max(largest, static_cast<double>(score));
  }
  double sum = 0;
  double total = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    double const weight = std::exp2(static_cast<double>(row[i]) - largest);
    sum += weight;
    total += weight * static_cast<double>(i);
  }
  return {std::log(2.0) * (largest + std::log2(sum)), total / sum};
}

}  // namespace

TEST_CASE("an online softmax keeps the laws of a reducer, with infinities too", "[host]") {
  CHECK(check_laws<online_softmax<float>>(scores(10.0F), same_value<float>{2e-6}).text().empty());
  CHECK(check_laws<online_softmax<float>>({1.0F, -infinite, 3.0F}, same_value<float>{1e-6}).text().empty());
  CHECK(
      check_laws<online_softmax<float>>({1.0F, infinite, -infinite, infinite}, same_value<float>{1e-6}).text().empty());
  CHECK(check_laws<online_softmax<double>>({0.1, 700.0, -700.0, 2.5}, same_value<double>{1e-14}).text().empty());
}

TEST_CASE("an online softmax is the log-sum-exp of scores in base 2", "[host]") {
  tessera::lse_reducer<double> const natural;
  online_softmax<double> const binary;
  auto a = natural.identity();
  auto b = binary.identity();
  for (float score : scores(5.0F)) {
    natural.push(a, static_cast<double>(score));
    binary.push(b, static_cast<double>(score) / std::log(2.0));
  }
  CHECK(is_close(natural.value(a), binary.value(b), 1e-14));
}

TEST_CASE("pieces of any length give the softmax of the row and its weighted mean", "[host]") {
  for (float spread : {0.01F, 3.0F, 40.0F, 500.0F}) {
    auto const row = scores(spread);
    auto const expected = by_the_formula(row);
    for (std::size_t const length : {1, 7, 64, 300}) {
      CAPTURE(spread, length);
      auto const found = in_pieces<float>(row, length);
      CHECK(is_close(found.lse, expected.lse, 2e-6));
      CHECK(is_close(found.mean, expected.mean, 1e-5));
      auto const exact = in_pieces<double>(row, length);
      CHECK(is_close(exact.lse, expected.lse, 1e-13));
      CHECK(is_close(exact.mean, expected.mean, 1e-12));
    }
  }
}

TEST_CASE("the reference of a piece is its own largest score, within 2^64 of the largest of all", "[host]") {
  online_softmax<float> const softmax;
  auto state = softmax.identity();
  CHECK(softmax.turn(state, 10.0F) == 0.0F);
  CHECK(softmax.turn(state, 4.0F) == 64.0F);
  CHECK(state.reference == 4.0F);
  CHECK(softmax.turn(state, -1000.0F) == 0x1p58F);
  CHECK(state.reference == -54.0F);
  CHECK(softmax.turn(state, -infinite) == 1.0F);
  CHECK(softmax.turn(state, 12.0F) == 0x1p-66F);
  float factor = 0;
  auto falling = scores(30.0F, 9, 64);
  falling[0] = 200.0F;  // a sink
  auto const found = in_pieces<float>(falling, 8, &factor);
  CHECK(factor == 0x1p64F);
  CHECK(is_close(found.lse, by_the_formula(falling).lse, 1e-6));
}

TEST_CASE("a piece of minus infinities changes nothing, and a row of them is empty", "[host]") {
  std::vector<float> const nothing(20, -infinite);
  CHECK(in_pieces<float>(nothing, 5).lse == -static_cast<double>(infinite));
  auto row = scores(3.0F, 5, 40);
  auto const expected = by_the_formula(row);
  row.insert(row.begin(), 16, -infinite);
  row.insert(row.end(), 16, -infinite);
  CHECK(is_close(in_pieces<float>(row, 8).lse, expected.lse, 1e-6));
  row[20] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(in_pieces<float>(row, 8).lse));
}

TEMPLATE_TEST_CASE("weights as numbers are those of their codes", "[host]", (scaled_float_quantizer<float8_e4m3>),
                   (scaled_float_quantizer<float8_e5m2>), (scaled_float_quantizer<float16>), (symmetric_quantizer<8>)) {
  online_softmax<float> const softmax;
  using code_type = typename TestType::code_type;
  for (float const reference : {-3.0F, 0.0F, 1000.0F}) {
    tessera::softmax_state<float> const state{reference, reference, 1.0F};
    for (int i = 0; i < 20000; ++i) {
      float const score = i == 7 ? -infinite : reference - 0.0013F * static_cast<float>(i);
      auto const expected = softmax.weigh<TestType>(state, 1.0F, score, false);
      auto const found = online_softmax<float>::weigh_number<TestType>(state, 1.0F, score, false);
      CAPTURE(reference, i);
      REQUIRE(found.number == static_cast<float>(tessera::gemm_operand<code_type>::widen(expected.code)));
      REQUIRE(found.weight == expected.weight);
    }
  }
}

TEST_CASE("halves of a row merge with what was added up by their weights", "[host]") {
  online_softmax<float> const softmax;
  auto const row = scores(20.0F);
  auto const expected = by_the_formula(row);
  tessera::softmax_state<float> states[2] = {softmax.identity(), softmax.identity()};
  float totals[2] = {};
  for (std::size_t i = 0; i < row.size(); ++i) {
    std::size_t const half = i < 100 ? 0 : 1;
    totals[half] *= softmax.turn(states[half], row[i]);
    float const weight = softmax.weight(states[half], row[i]);
    states[half].sum += weight;
    totals[half] += weight * static_cast<float>(i);
  }
  auto const by = softmax.merge_factors(states[0], states[1]);
  float const total = totals[0] * by.of_first + totals[1] * by.of_second;
  softmax.merge(states[0], states[1]);
  CHECK(is_close(total / states[0].sum, expected.mean, 1e-5));
  CHECK(is_close(softmax.value(states[0]), expected.lse, 2e-6));
}
