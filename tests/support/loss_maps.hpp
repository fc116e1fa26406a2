// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Readers' maps of logits, and the same maps in double for the reference.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <math.h>  // the global names are those that nvcc has on both sides
#include <vector>

#include <tessera/testing/generators.hpp>
#include <tessera/view/array_view.hpp>

#include "support/loss_reference.hpp"

namespace tessera_test {

/// Logit adjustment: adds the logarithm of a prior, times a strength, to each entry.
struct adjusted_by_prior {
  tessera::array_view<float const> log_prior;  ///< a value for each entry
  float strength;

  TESSERA_FN float operator()(float logit, std::int64_t, std::int64_t entry) const {
    return logit + strength * log_prior[entry];
  }
  TESSERA_FN float slope(float, std::int64_t, std::int64_t) const { return 1.0F; }
  float steepest() const { return 1.0F; }
};

/// Multiplies the logits of each token by a number.
struct heated_by_token {
  tessera::array_view<float const> heat;  ///< a value for each token
  float most;                             ///< the largest magnitude among them

  TESSERA_FN float operator()(float logit, std::int64_t token, std::int64_t) const { return logit * heat[token]; }
  TESSERA_FN float slope(float, std::int64_t token, std::int64_t) const { return heat[token]; }
  float steepest() const { return most; }
};

/// A curve that differs for each token and entry: it is steeper around the shift.
struct curved {
  TESSERA_FN float operator()(float logit, std::int64_t token, std::int64_t entry) const {
    float const from = logit + shift(token, entry);
    return logit + 0.5F * from / ::sqrtf(1.0F + from * from);
  }
  TESSERA_FN float slope(float logit, std::int64_t token, std::int64_t entry) const {
    float const from = logit + shift(token, entry);
    float const square = 1.0F + from * from;
    return 1.0F + 0.5F / (square * ::sqrtf(square));
  }
  float steepest() const { return 1.5F; }

  TESSERA_FN static float shift(std::int64_t token, std::int64_t entry) {
    return static_cast<float>(token % 7) - static_cast<float>(entry % 5);
  }
};

inline reference_map in_double(std::vector<float> const& log_prior, float strength) {
  return {[=](double logit, std::int64_t, std::int64_t entry) {
            return logit +
                   static_cast<double>(strength) * static_cast<double>(log_prior[static_cast<std::size_t>(entry)]);
          },
          [](double, std::int64_t, std::int64_t) { return 1.0; }};
}
inline reference_map in_double(std::vector<float> const& heat) {
  auto const of = [=](std::int64_t token) { return static_cast<double>(heat[static_cast<std::size_t>(token)]); };
  return {[=](double logit, std::int64_t token, std::int64_t) { return logit * of(token); },
          [=](double, std::int64_t token, std::int64_t) { return of(token); }};
}
inline reference_map in_double(curved) {
  auto const from = [](double logit, std::int64_t token, std::int64_t entry) {
    return logit + static_cast<double>(curved::shift(token, entry));
  };
  return {[=](double logit, std::int64_t token, std::int64_t entry) {
            double const x = from(logit, token, entry);
            return logit + 0.5 * x / std::sqrt(1 + x * x);
          },
          [=](double logit, std::int64_t token, std::int64_t entry) {
            double const x = from(logit, token, entry);
            return 1.0 + 0.5 / std::pow(1 + x * x, 1.5);
          }};
}

/// Logarithms of a prior that falls with the number of the entry, by 1 / (entry + 1).
inline std::vector<float> log_prior_of(std::int64_t vocabulary) {
  std::vector<float> prior;
  for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
    prior.push_back(-std::log(static_cast<float>(entry + 1)));
  }
  return prior;
}
/// Numbers from 1/4 to `most`, one for each token.
inline std::vector<float> heat_of(std::int64_t tokens, float most) {
  std::vector<float> heat;
  for (std::int64_t token = 0; token < tokens; ++token) {
    heat.push_back(
        tessera::testing::uniform{0.25, static_cast<double>(most)}.value(31, static_cast<std::uint64_t>(token)));
  }
  return heat;
}

}  // namespace tessera_test
