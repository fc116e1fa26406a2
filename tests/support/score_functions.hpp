// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Functions that users give attention: functions of inputs, and a bias. Every product that a sum follows is written as
/// one operation, so that hosts and devices round alike.
#pragma once

#include <cmath>
#include <cstdint>
#include <math.h>
#include <vector>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera_test {

/// A rotary embedding by a table.
struct rotated {
  tessera::view<float const, 2> cosines;
  tessera::view<float const, 2> sines;

  template <class Stored>
  TESSERA_FN float operator()(Stored const& x, std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    std::int64_t const half = cosines.extent(1);
    std::int64_t const i = channel % half;
    float const other = x(sequence, head, token, (channel + half) % (2 * half));
    return fmaf(x(sequence, head, token, channel), cosines(token, i),
                (channel < half ? -other : other) * sines(token, i));
  }
};

/// Divides by the root of the mean square of the token's head, and multiplies by a weight for each channel.
struct normalized {
  tessera::array_view<float const> weights;
  float least;  ///< added to the mean

  template <class Stored>
  TESSERA_FN float operator()(Stored const& x, std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    float squares = 0;
    for (std::int64_t c = 0; c < weights.size(); ++c) {
      float const value = x(sequence, head, token, c);
      squares = fmaf(value, value, squares);
    }
    return x(sequence, head, token, channel) * weights[channel] /
           sqrtf(squares / static_cast<float>(weights.size()) + least);
  }
};

/// Normalizes, then rotates.
struct normalized_and_rotated {
  normalized norm;
  rotated turn;

  template <class Stored>
  TESSERA_FN float operator()(Stored const& x, std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    auto const normed = [&, this](std::int64_t s, std::int64_t h, std::int64_t t, std::int64_t c) {
      return norm(x, s, h, t, c);
    };
    return turn(normed, sequence, head, token, channel);
  }
};

/// The tables that the functions read.
struct map_tables {
  std::vector<float> cosines;
  std::vector<float> sines;
  std::vector<float> weights;

  map_tables(std::int64_t tokens, std::int64_t channels) {
    std::int64_t const half = channels / 2;
    for (std::int64_t i = 0; i < tokens * half; ++i) {
      double const share = static_cast<double>(i % half) / static_cast<double>(half);
      double const angle = static_cast<double>(i / half) * std::pow(10000.0, -share);
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      weights.push_back(1.0F + 0.3F * tessera::testing::gauss{}.value(8, static_cast<std::uint64_t>(c)));
    }
  }
};

/// Alibi, with key 3 masked for all queries.
struct slope_bias {
  float slope;
  TESSERA_FN float operator()(std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) const {
    return key == 3 ? -tessera::infinity : -slope * static_cast<float>(head + 1) * static_cast<float>(query - key);
  }
};

}  // namespace tessera_test
