// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What KVTC finds in samples: the basis of principal components, each component's bits by a dynamic program, and the
/// coder's tables, on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <tessera/entropy/fit_frequencies.hpp>
#include <tessera/project/symmetric_eigen.hpp>

#include "kvtc.hpp"

namespace tessera_examples {

struct kvtc_calibration {
  static constexpr int choices[] = {0, 2, 4, 8};   ///< bits
  std::vector<double> basis;                       ///< one component after the other
  std::vector<kvtc_component> components;          ///< the widest first
  std::vector<rans_coder<12>::model_type> models;  ///< of codes of 2, 4 and 8 bits

  /// `samples`: token after token. `bits`: of a value, before codes are entropy-coded.
  kvtc_calibration(std::vector<double> const& samples, int channels, double bits) {
    std::size_t const c = static_cast<std::size_t>(channels), n = samples.size() / c;
    std::vector<double> mean(c), covariance(c * c);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      mean[i % c] += samples[i] / static_cast<double>(n);
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (std::size_t j = 0; j < c; ++j) {
        covariance[i % c * c + j] += (samples[i] - mean[i % c]) * (samples[i / c * c + j] - mean[j]);
      }
    }
    basis = tessera::detail::decompose_symmetric(covariance, channels).vectors;
    std::vector<double> found(n * c);  // component after component
    for (std::size_t k = 0; k < c; ++k) {
      for (std::size_t t = 0; t < n; ++t) {
        for (std::size_t i = 0; i < c; ++i) {
          found[k * n + t] += samples[t * c + i] * basis[k * c + i];
        }
      }
    }
    share_out(found, n, static_cast<std::size_t>(bits * channels / 2));
    std::vector<std::uint64_t> counts(3 * 256);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (auto const& of = components[i / n]; of.bits > 0) {
        ++counts[of.bits / 4 * 256 + of.encode(static_cast<float>(found[i]))];
      }
    }
    for (std::size_t i = 0; i < 3; ++i) {  // each code can be coded, whether samples had it or not
      std::uint64_t const rare = found.size() / 4096 + 1;
      std::for_each_n(counts.begin() + i * 256, 1 << choices[i + 1], [&](std::uint64_t& count) { count += rare; });
      fit_frequencies(&counts[i * 256], models.emplace_back());
    }
  }

 private:
  static kvtc_component component(double const* values, std::size_t n, int bits) {
    auto const [low, high] = std::minmax_element(values, values + n);
    double mean = 0;
    std::for_each_n(values, n, [&](double value) { mean += value / static_cast<double>(n); });
    double const step = std::max((*high - *low) / (1 << bits), 1e-30);
    return {static_cast<float>(bits == 0 ? mean : (*high + *low) / 2), static_cast<float>(step), bits};
  }
  /// Gives components their bits, pairs of which are `units` together, with the least sum of squares.
  void share_out(std::vector<double> const& found, std::size_t n, std::size_t units) {
    std::size_t const c = found.size() / n;
    std::vector<double> best(units + 1);
    std::vector<std::vector<int>> taken;  // component x units
    for (std::size_t k = 0; k < c; ++k) {
      std::vector<double> next(units + 1, std::numeric_limits<double>::infinity());
      std::vector<int>& bits_at = taken.emplace_back(units + 1);
      for (int const bits : choices) {
        auto const of = component(&found[k * n], n, bits);
        double error = 0;
        for (std::size_t t = 0; t < n; ++t) {
          auto const value = static_cast<float>(found[k * n + t]);
          error += std::pow(double{value} - double{of.decode(bits == 0 ? 0 : of.encode(value))}, 2);
        }
        for (std::size_t u = static_cast<std::size_t>(bits / 2); u <= units; ++u) {
          if (double const sum = best[u - bits / 2] + error; sum < next[u]) {
            next[u] = sum;
            bits_at[u] = bits;
          }
        }
      }
      best = next;
    }
    components.resize(c);
    for (std::size_t k = c; k-- > 0; units -= static_cast<std::size_t>(taken[k][units]) / 2) {
      components[k] = component(&found[k * n], n, taken[k][units]);
    }
  }
};

}  // namespace tessera_examples
