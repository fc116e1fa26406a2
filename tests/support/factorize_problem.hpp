// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Keys with a given spectrum, their products in double, and what directions leave of the keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/project/symmetric_eigen.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

namespace tessera_test {

using namespace tessera;

struct found_directions {
  std::vector<float> directions;  ///< width x rank
  subspace_measures measures;
  std::vector<float> gram;
};

/// Searches directions by the programs that the executor chooses, or by one of those in
/// algorithm/subspace/subspace_search.hpp.
struct executors_choice {
  template <class Executor, class T>
  static void run(Executor const& exec, subspace_search<T> const& search) {
    tessera::run(exec, search);
  }
};

template <class Search = executors_choice, class T, class Executor>
found_directions factorize(Executor const& exec, std::vector<T> const& keys, std::int64_t heads, std::int64_t tokens,
                           std::int64_t channels, std::int64_t rank, subspace_options options = {},
                           std::int64_t piece = 1 << 30) {
  std::int64_t const width = heads * channels;
  key_factorization const factorization(width, rank, options);
  workspace_plan plan("test");
  auto const regions = factorization.add_to(plan);
  buffer<std::byte> memory(plan.bytes());
  workspace const space(plan, memory.view());
  found_directions found;
  found.gram.assign(static_cast<std::size_t>(width * width), 0.0F);
  found.directions.assign(static_cast<std::size_t>(width * rank), -77.0F);
  matrix_view<float> const gram(found.gram.data(), {width, width});
  view<T const, 3> const all(keys.data(), {heads, tokens, channels});
  for (std::int64_t first = 0; first < tokens; first += piece) {
    factorization.accumulate(exec, all.slice(1, first, std::min(piece, tokens - first)), gram);
  }
  matrix_view<float> const directions(found.directions.data(), {width, rank});
  Search::run(exec, subspace_search<float>{gram, directions, std::min(rank + options.oversampling, width),
                                           options.iterations, regions, space});
  found.measures = space[regions.measures][0];
  return found;
}

/// Keys whose products have eigenvalues of about power(i): normal coefficients in a rotated basis.
template <class Spectrum>
std::vector<float> keys_with(std::int64_t heads, std::int64_t tokens, std::int64_t channels, Spectrum spectrum) {
  auto const width = static_cast<std::size_t>(heads * channels);
  std::vector<float> keys(static_cast<std::size_t>(tokens) * width);
  std::vector<double> row(width);
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    for (std::size_t i = 0; i < width; ++i) {
      row[i] = std::sqrt(spectrum(static_cast<double>(i))) * double{testing::gauss().value(11, t * width + i)};
    }
    for (std::uint64_t seed = 0; seed < 3; ++seed) {  // three reflections mix the channels
      std::vector<double> mirror(width);
      double square = 0;
      double product = 0;
      for (std::size_t i = 0; i < width; ++i) {
        mirror[i] = double{testing::gauss().value(seed, i)};
        square += mirror[i] * mirror[i];
        product += mirror[i] * row[i];
      }
      for (std::size_t i = 0; i < width; ++i) {
        row[i] -= 2 * product / square * mirror[i];
      }
    }
    for (std::size_t i = 0; i < width; ++i) {
      std::size_t const head = i / static_cast<std::size_t>(channels);
      std::size_t const channel = i % static_cast<std::size_t>(channels);
      keys[(head * static_cast<std::size_t>(tokens) + t) * static_cast<std::size_t>(channels) + channel] =
          static_cast<float>(row[i]);
    }
  }
  return keys;
}

/// The products of all pairs of channels, in double.
template <class T>
std::vector<double> exact_gram(std::vector<T> const& keys, std::int64_t heads, std::int64_t tokens,
                               std::int64_t channels) {
  std::int64_t const width = heads * channels;
  std::vector<double> gram(static_cast<std::size_t>(width * width));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < width; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        auto const at = [&](std::int64_t c) {
          return double{load(keys[static_cast<std::size_t>((c / channels * tokens + t) * channels + c % channels)])};
        };
        gram[static_cast<std::size_t>(i * width + j)] += at(i) * at(j);
      }
    }
  }
  return gram;
}

inline double trace_of(std::vector<double> const& gram, std::int64_t width) {
  double trace = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    trace += gram[static_cast<std::size_t>(i * width + i)];
  }
  return trace;
}

/// What the directions leave of the rows, |X - X Q Q^T|^2, for orthonormal Q.
inline double left_by(std::vector<double> const& gram, std::vector<float> const& q, std::int64_t width,
                      std::int64_t rank) {
  double held = 0;
  for (std::int64_t k = 0; k < rank; ++k) {
    for (std::int64_t i = 0; i < width; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        held += double{q[static_cast<std::size_t>(i * rank + k)]} * gram[static_cast<std::size_t>(i * width + j)] *
                double{q[static_cast<std::size_t>(j * rank + k)]};
      }
    }
  }
  return trace_of(gram, width) - held;
}

inline double least_left(std::vector<double> const& gram, std::int64_t width, std::int64_t rank) {
  auto const eigen = tessera::detail::decompose_symmetric(gram, static_cast<int>(width));
  double left = 0;
  for (std::int64_t i = rank; i < width; ++i) {
    left += eigen.values[static_cast<std::size_t>(i)];
  }
  return left;
}

inline double worst_product(std::vector<float> const& q, std::int64_t width, std::int64_t rank) {
  double worst = 0;
  for (std::int64_t a = 0; a < rank; ++a) {
    for (std::int64_t b = 0; b < rank; ++b) {
      double sum = a == b ? -1.0 : 0.0;
      for (std::int64_t i = 0; i < width; ++i) {
        sum += double{q[static_cast<std::size_t>(i * rank + a)]} * double{q[static_cast<std::size_t>(i * rank + b)]};
      }
      worst = std::max(worst, std::fabs(sum));
    }
  }
  return worst;
}

template <class T>
void check_found(found_directions const& found, std::vector<T> const& keys, std::int64_t heads, std::int64_t tokens,
                 std::int64_t channels, std::int64_t rank, double most) {
  std::int64_t const width = heads * channels;
  auto const gram = exact_gram(keys, heads, tokens, channels);
  double const best = least_left(gram, width, rank);
  double const left = left_by(gram, found.directions, width, rank);
  CHECK(worst_product(found.directions, width, rank) < 1e-4);
  CHECK(left <= most * best + 1e-6 * trace_of(gram, width));
  CHECK(left >= best - 1e-6 * trace_of(gram, width));
  CHECK(found.measures.trace == Approx(trace_of(gram, width)).epsilon(1e-5));
  CHECK(found.measures.trace - found.measures.held == Approx(left).margin(2e-6 * trace_of(gram, width)));
}

}  // namespace tessera_test
