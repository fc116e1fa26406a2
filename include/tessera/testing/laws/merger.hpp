// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Merger.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <tessera/concepts/merger.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/reducer.hpp>

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
  auto const reducer = merger.measure();
  auto measured = reducer.identity();
  for (std::size_t i = 0; i < pair.first.size(); ++i) {
    reducer.push(measured, couple{pair.first[i], pair.second[i]});
  }
  auto const weights = merger.mix(measured);
  auto const kept = merger.keep(measured);
  vector_pair restored;
  for (std::size_t i = 0; i < pair.first.size(); ++i) {
    float const merged = weights.first * pair.first[i] + weights.second * pair.second[i];
    restored.first.push_back(merger.restore(merged, kept, side::first));
    restored.second.push_back(merger.restore(merged, kept, side::second));
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
  report.expect(merge_and_restore(merger, {vector, zeros}).second == zeros &&
                    merge_and_restore(merger, {zeros, vector}).first == zeros,
                "zeros restore to zeros", name);
  for (vector_pair const& pair : {vector_pair{vector, vector}, vector_pair{vector, opposite},
                                  vector_pair{vector, zeros}, vector_pair{zeros, vector}, vector_pair{zeros, zeros}}) {
    report.expect(all_finite(merge_and_restore(merger, pair)), "finite vectors restore to finite ones", name);
  }
}

}  // namespace detail

/// Checks M on `pairs`, and on the equal, opposite and zero pairs made from their vectors. `tolerance` is relative to
/// the length of a vector. The measure is checked on the elements of the first pair with `same`.
template <Merger M, class Same>
law_report check_laws(std::vector<vector_pair> const& pairs, double tolerance, Same same, M const& merger = {}) {
  law_report report;
  std::vector<couple> elements;
  for (std::size_t i = 0; !pairs.empty() && i < pairs.front().first.size(); ++i) {
    elements.push_back({pairs.front().first[i], pairs.front().second[i]});
  }
  report.include("measure(): ", check_laws<measure_reducer_t<M>>(elements, same, merger.measure()));
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    std::string const name = "pair " + std::to_string(p);
    report.expect(detail::all_finite(merge_and_restore(merger, pairs[p])), "finite vectors restore to finite ones",
                  name);
    detail::check_vector(report, merger, pairs[p].first, tolerance, name + ", first");
    detail::check_vector(report, merger, pairs[p].second, tolerance, name + ", second");
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
