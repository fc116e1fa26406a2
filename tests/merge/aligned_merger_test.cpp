// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/merge/aligned_merger.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/reduce/pair_products.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using tessera::aligned_merger;
using tessera::bfloat16;
using tessera::matrix_view;
using tessera_test::message_of;

namespace {

struct samples {
  std::int64_t tokens;
  std::int64_t channels;
  std::vector<float> values;

  samples(std::int64_t of_tokens, std::int64_t of_channels, std::uint64_t seed)
      : tokens(of_tokens), channels(of_channels), values(static_cast<std::size_t>(of_tokens * of_channels)) {
    tessera::testing::fill(tessera::testing::gauss(), seed, values.data(), values.size());
  }
  [[nodiscard]] matrix_view<float> view() { return {values.data(), {tokens, channels}}; }
  [[nodiscard]] matrix_view<float const> view() const { return {values.data(), {tokens, channels}}; }
};

/// Turns channels 2 i and 2 i + 1 of all tokens by an angle that depends on i, after a shift of the channels by three.
samples turned(samples const& from) {
  samples to = from;
  for (std::int64_t token = 0; token < from.tokens; ++token) {
    for (std::int64_t channel = 0; channel < from.channels; ++channel) {
      to.view()(token, (channel + 3) % from.channels) = from.view()(token, channel);
    }
    for (std::int64_t channel = 0; channel + 1 < from.channels; channel += 2) {
      float const angle = 0.3F + 0.1F * static_cast<float>(channel);
      float const first = to.view()(token, channel);
      float const second = to.view()(token, channel + 1);
      to.view()(token, channel) = std::cos(angle) * first - std::sin(angle) * second;
      to.view()(token, channel + 1) = std::sin(angle) * first + std::cos(angle) * second;
    }
  }
  return to;
}

/// The largest difference of R^T R from the identity.
double skewness(aligned_merger const& merger) {
  auto const r = merger.rotation();
  double largest = 0;
  for (std::int64_t i = 0; i < merger.channels(); ++i) {
    for (std::int64_t j = 0; j < merger.channels(); ++j) {
      double product = 0;
      for (std::int64_t k = 0; k < merger.channels(); ++k) {
        product += r(k, i) * r(k, j);
      }
      largest = std::max(largest, std::fabs(product - (i == j ? 1.0 : 0.0)));
    }
  }
  return largest;
}

double largest_difference(samples const& a, samples const& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i])));
  }
  return largest;
}

/// The trace of R^T M with M the sum of y^T x: the larger, the nearer are x and y R.
double likeness(matrix_view<double const> r, samples const& x, samples const& y) {
  double sum = 0;
  for (std::int64_t token = 0; token < x.tokens; ++token) {
    for (std::int64_t i = 0; i < x.channels; ++i) {
      for (std::int64_t j = 0; j < x.channels; ++j) {
        sum += r(i, j) * static_cast<double>(y.view()(token, i)) * static_cast<double>(x.view()(token, j));
      }
    }
  }
  return sum;
}

aligned_merger fitted(samples const& first, samples const& second) {
  aligned_merger merger(first.channels);
  merger.add(first.view(), second.view());
  merger.fit();
  return merger;
}

}  // namespace

TEST_CASE("an aligned merger finds the rotation between two layers", "[host][merge]") {
  for (std::int64_t const channels : {1, 2, 7, 64, 65}) {
    samples const first(2 * channels + 3, channels, 11);
    samples const second = turned(first);
    aligned_merger const merger = fitted(first, second);
    samples found = second;
    merger.align(second.view(), found.view());
    CAPTURE(channels);
    CHECK(largest_difference(found, first) < 1e-5);
    CHECK(skewness(merger) < 1e-12);
  }
}

TEST_CASE("a rotation is orthogonal also where samples are few, repeated or in a plane", "[host][merge]") {
  for (std::int64_t const tokens : {1, 2, 20}) {
    samples first(tokens, 33, 5);
    samples second(tokens, 33, 6);
    for (std::int64_t token = 0; token < tokens; ++token) {
      second.view()(token, 7) = 0;
      first.view()(token, 8) = 0;
    }
    CHECK(skewness(fitted(first, second)) < 1e-12);
    for (float& value : second.values) {
      value *= 1e-30F;
    }
    CHECK(skewness(fitted(first, second)) < 1e-12);
  }
}

TEST_CASE("no rotation nearby brings two layers nearer to each other", "[host][merge]") {
  std::int64_t const channels = 12;
  samples const first(40, channels, 21);
  samples second = turned(first);
  samples const noise(40, channels, 22);
  for (std::size_t i = 0; i < second.values.size(); ++i) {
    second.values[i] += 0.7F * noise.values[i];
  }
  aligned_merger const merger = fitted(first, second);
  double const best = likeness(merger.rotation(), first, second);
  auto const r = merger.rotation();
  for (std::int64_t p = 0; p < channels; ++p) {
    for (std::int64_t q = 0; q < p; ++q) {
      for (double const angle : {-0.01, 0.01}) {
        std::vector<double> other(r.data, r.data + channels * channels);
        for (std::int64_t i = 0; i < channels; ++i) {
          auto const at = [&](std::int64_t j) -> double& { return other[static_cast<std::size_t>(i * channels + j)]; };
          at(p) = std::cos(angle) * r(i, p) - std::sin(angle) * r(i, q);
          at(q) = std::sin(angle) * r(i, p) + std::cos(angle) * r(i, q);
        }
        CHECK(likeness({other.data(), {channels, channels}}, first, second) < best);
      }
    }
  }
}

TEST_CASE("vectors that were aligned are restored, in place and through strides", "[host][merge]") {
  std::int64_t const channels = 48;
  samples const first(100, channels, 31);
  aligned_merger const merger = fitted(first, turned(first));
  samples values(9, channels, 32);
  samples const before = values;
  merger.align(values.view(), values.view());
  CHECK(largest_difference(values, before) > 0.1);
  samples apart(18, channels, 33);
  matrix_view<float> const every_other(apart.values.data(), {9, channels}, {2 * channels, 1});
  merger.align(before.view(), every_other);
  for (std::int64_t token = 0; token < 9; ++token) {
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      CHECK(every_other(token, channel) == values.view()(token, channel));
    }
  }
  merger.restore(values.view(), values.view());
  CHECK(largest_difference(values, before) < 1e-6);
}

TEST_CASE("samples that come in parts have the same rotation as all at once, to the last bit", "[host][merge]") {
  samples const first(30, 16, 41);
  samples const second(30, 16, 42);
  aligned_merger const whole = fitted(first, second);
  aligned_merger parts(16);
  parts.add(first.view().slice(0, 0, 7), second.view().slice(0, 0, 7));
  parts.add(first.view().slice(0, 7, 0), second.view().slice(0, 7, 0));
  parts.add(first.view().slice(0, 7, 23), second.view().slice(0, 7, 23));
  parts.fit();
  for (std::int64_t i = 0; i < 16; ++i) {
    for (std::int64_t j = 0; j < 16; ++j) {
      CHECK(parts.rotation()(i, j) == whole.rotation()(i, j));
    }
  }
}

TEST_CASE("aligned layers merge with less error than layers as they are", "[host][merge]") {
  std::int64_t const channels = 64;
  samples const first(200, channels, 51);
  samples second = turned(first);
  samples const noise(200, channels, 52);
  for (std::size_t i = 0; i < second.values.size(); ++i) {
    second.values[i] += 0.2F * noise.values[i];
  }
  // Fitted to the first half, judged by the second one.
  aligned_merger merger(channels);
  merger.add(first.view().slice(0, 0, 100), second.view().slice(0, 0, 100));
  merger.fit();
  samples aligned = second;
  merger.align(second.view(), aligned.view());
  auto const error_of_merging = [&](samples const& other) {
    double error = 0;
    double all = 0;
    tessera::slerp_merger<float> const slerp;
    tessera::pair_products_reducer const reducer;
    for (std::int64_t token = 100; token < 200; ++token) {
      auto measured = reducer.identity();
      for (std::int64_t i = 0; i < channels; ++i) {
        reducer.push(measured, {first.view()(token, i), other.view()(token, i)});
      }
      auto const weights = slerp.mix(measured);
      auto const kept = slerp.keep(measured);
      for (std::int64_t i = 0; i < channels; ++i) {
        float const a = first.view()(token, i);
        float const b = other.view()(token, i);
        float const mixture = weights.first * a + weights.second * b;
        error += std::pow(static_cast<double>(mixture * kept.of_side(tessera::side::second) - b), 2);
        all += std::pow(static_cast<double>(b), 2);
      }
    }
    return std::sqrt(error / all);
  };
  CHECK(error_of_merging(second) > 0.3);
  CHECK(error_of_merging(aligned) < 0.1);
}

TEST_CASE("sixteen-bit vectors are aligned within their rounding", "[host][merge]") {
  samples const first(50, 32, 61);
  aligned_merger const merger = fitted(first, turned(first));
  std::vector<bfloat16> narrow;
  samples wide(50, 32, 62);
  for (float& value : wide.values) {
    narrow.push_back(tessera::store<bfloat16>(value));
    value = tessera::load(narrow.back());
  }
  matrix_view<bfloat16> const view(narrow.data(), {50, 32});
  merger.align(view, view);
  merger.align(wide.view(), wide.view());
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    CHECK(tessera::load(narrow[i]) == tessera::load(tessera::store<bfloat16>(wide.values[i])));
  }
}

TEST_CASE("an aligned merger refuses what does not fit, with both numbers", "[host][merge]") {
  samples const three(4, 3, 1);
  samples const four(4, 4, 2);
  samples const fewer(3, 4, 3);
  aligned_merger merger(4);
  CHECK(message_of([] { aligned_merger const none(0); }) ==
        "aligned_merger: vectors have 0 channels but must have from 1 to 4096");
  CHECK(message_of([&] { merger.add(four.view(), three.view()); }) ==
        "aligned_merger.add: the second vectors have 3 channels but the merger has 4");
  CHECK(message_of([&] { merger.add(four.view(), fewer.view()); }) ==
        "aligned_merger.add: there are 4 first vectors but 3 second ones");
  CHECK(message_of([&] { merger.fit(); }) ==
        "aligned_merger.fit: there are 0 samples, and 0 of their products are not zero but at least 1 must be");
  samples to(3, 4, 4);
  CHECK(message_of([&] { merger.align(four.view(), to.view()); }) ==
        "aligned_merger.align: there are 4 vectors but 3 results");
  for (float const bad : {tessera::infinity, -tessera::infinity, std::nanf("")}) {
    samples broken = four;
    broken.view()(2, 1) = bad;
    aligned_merger other(4);
    CHECK_THROWS_AS(other.add(four.view(), broken.view()), tessera::value_error);
    CHECK_THROWS_AS(other.add(broken.view(), four.view()), tessera::value_error);
  }
}
