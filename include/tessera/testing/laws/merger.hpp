// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Merger.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <tessera/concepts/merger.hpp>
#include <tessera/reduce/pair_products.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

/// Two vectors of one length.
struct vector_pair {
  std::vector<float> first;   ///< of as many elements as `second`
  std::vector<float> second;  ///< of as many elements as `first`
};

/// Merges a pair as a program does, and restores both vectors.
template <Merger M>
vector_pair merge_and_restore(M const& merger, vector_pair const& pair) {
  pair_products_reducer const reducer;
  pair_products measured = reducer.identity();
  for (std::size_t i = 0; i < pair.first.size(); ++i) {
    reducer.push(measured, couple{pair.first[i], pair.second[i]});
  }
  mix_weights const weights = merger.mix(measured);
  auto const factors = merger.keep(measured);
  vector_pair restored;
  for (std::size_t i = 0; i < pair.first.size(); ++i) {
    float const merged = weights.first * pair.first[i] + weights.second * pair.second[i];
    restored.first.push_back(merged * factors.of_side(side::first));
    restored.second.push_back(merged * factors.of_side(side::second));
  }
  return restored;
}

namespace detail {

inline double norm(std::vector<float> const& vector) {
  double sum = 0;
  for (float value : vector) {
    sum += double{value} * double{value};
  }
  return std::sqrt(sum);
}

/// Whether `a` and `b` differ by at most `tolerance` times the length of `a`.
inline bool is_near(std::vector<float> const& a, std::vector<float> const& b, double tolerance) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double const difference = double{a[i]} - double{b[i]};
    sum += difference * difference;
  }
  return std::sqrt(sum) <= tolerance * norm(a);
}

inline bool all_finite(vector_pair const& pair) {
  bool finite = true;
  for (std::vector<float> const* vector : {&pair.first, &pair.second}) {
    for (float value : *vector) {
      finite = finite && std::isfinite(value);
    }
  }
  return finite;
}

/// Checks a vector that is merged with zeros.
template <Merger M>
void check_single(law_report& report, M const& merger, std::vector<float> const& vector, double tolerance,
                  std::string const& name) {
  std::vector<float> const zeros(vector.size(), 0.0F);
  vector_pair const restored = merge_and_restore(merger, {vector, zeros});
  report.expect(restored.second == zeros, "zeros restore to zeros", name);
  report.expect(all_finite(restored) && all_finite(merge_and_restore(merger, {zeros, zeros})),
                "finite vectors restore to finite ones", name);
  if constexpr (keeps_single_vectors<M>) {
    double const length = norm(vector);
    pair_products const measured{length * length, 0.0, 0.0};
    double const factor = merger.keep(measured).of_side(side::first);
    double const weight = merger.mix(measured).first;
    report.expect(std::fabs(factor - length) <= tolerance * length &&
                      std::fabs(weight * length - (length > 0 ? 1.0 : 0.0)) <= tolerance,
                  "a single vector keeps its direction and its length", name);
    report.expect(is_near(vector, restored.first, tolerance), "a single vector restores to itself", name);
  }
}

/// Checks the pairs that are made of one vector.
template <Merger M>
void check_vector(law_report& report, M const& merger, std::vector<float> const& vector, double tolerance,
                  std::string const& name) {
  std::vector<float> const zeros(vector.size(), 0.0F);
  std::vector<float> opposite;
  opposite.reserve(vector.size());
  for (float value : vector) {
    opposite.push_back(-value);
  }
  auto const equal = merge_and_restore(merger, {vector, vector});
  report.expect(is_near(vector, equal.first, tolerance) && is_near(vector, equal.second, tolerance),
                "two equal vectors restore to themselves", name);
  report.expect(merge_and_restore(merger, {zeros, vector}).first == zeros, "zeros restore to zeros", name);
  for (vector_pair const& pair :
       {vector_pair{vector, vector}, vector_pair{vector, opposite}, vector_pair{zeros, vector}}) {
    report.expect(all_finite(merge_and_restore(merger, pair)), "finite vectors restore to finite ones", name);
  }
}

}  // namespace detail

/// Checks M on `pairs`, and on the equal, opposite and zero pairs made from their vectors; a merger that merges no
/// pairs on each vector with zeros alone. `tolerance` is relative to the length of a vector.
template <Merger M>
law_report check_laws(std::vector<vector_pair> const& pairs, double tolerance, M const& merger = {}) {
  law_report report;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    std::string const name = "pair " + std::to_string(p);
    detail::check_single(report, merger, pairs[p].first, tolerance, name + ", first");
    detail::check_single(report, merger, pairs[p].second, tolerance, name + ", second");
    if constexpr (merges_pairs<M>) {
      report.expect(detail::all_finite(merge_and_restore(merger, pairs[p])), "finite vectors restore to finite ones",
                    name);
      detail::check_vector(report, merger, pairs[p].first, tolerance, name + ", first");
      detail::check_vector(report, merger, pairs[p].second, tolerance, name + ", second");
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
