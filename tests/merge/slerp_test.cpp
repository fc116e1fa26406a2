// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <vector>

#include <tessera/merge/slerp.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/merger.hpp>
#include <tessera/testing/reference.hpp>

#include "merge/pair_samples.hpp"
#include "support/catch.hpp"

using tessera::slerp_merger;
using tessera::testing::is_close;
using tessera::testing::merge_and_restore;
using tessera::testing::reference_angle;
using tessera::testing::vector_pair;
using tessera_test::error_of;

namespace {

constexpr std::size_t width = 128;
constexpr double pi = 3.14159265358979323846;

std::vector<double> unit_vector(std::uint64_t seed) {
  std::vector<double> vector;
  double square = 0;
  for (std::size_t i = 0; i < width; ++i) {
    vector.push_back(tessera::testing::gauss().value(seed, i));
    square += vector.back() * vector.back();
  }
  for (double& element : vector) {
    element /= std::sqrt(square);
  }
  return vector;
}

/// Two vectors of the given lengths, `angle` apart.
vector_pair pair_at(double angle, double first_length, double second_length) {
  auto const u = unit_vector(1);
  auto v = unit_vector(2);
  double along = 0;
  for (std::size_t i = 0; i < width; ++i) {
    along += u[i] * v[i];
  }
  double const across = std::sqrt(1 - along * along);
  vector_pair pair;
  for (std::size_t i = 0; i < width; ++i) {
    double const w = (v[i] - along * u[i]) / across;
    pair.first.push_back(static_cast<float>(first_length * u[i]));
    pair.second.push_back(static_cast<float>(second_length * (std::cos(angle) * u[i] + std::sin(angle) * w)));
  }
  return pair;
}

std::vector<double> widened(std::vector<float> const& vector) {
  return {vector.begin(), vector.end()};
}

double angle_of(vector_pair const& pair) {
  return reference_angle(widened(pair.first), widened(pair.second));
}

double measured_angle(vector_pair const& pair) {
  tessera::pair_products_reducer const reducer;
  auto measured = reducer.identity();
  for (std::size_t i = 0; i < width; ++i) {
    reducer.push(measured, {pair.first[i], pair.second[i]});
  }
  return tessera::angle_between(measured);
}

}  // namespace

TEST_CASE("spherical interpolation keeps the laws", "[host]") {
  std::vector<vector_pair> pairs;
  for (double angle : {0.5, 1.5, 3.0}) {
    pairs.push_back(pair_at(angle, 1.0, 30.0));
    pairs.push_back(pair_at(angle, 1e-15, 1e25));
  }
  CHECK(tessera::testing::check_laws<slerp_merger<float>>(pairs, 1e-6).text().empty());
  CHECK(tessera::testing::check_laws<slerp_merger<tessera::bfloat16>>(pairs, 4e-3).text().empty());
}

TEST_CASE("the angle is good to 1e-7 from zero to pi", "[host]") {
  for (double angle : {0.0, 1e-6, 1e-4, 1e-3, 0.1, 1.0, 2.0, 3.0, pi - 1e-3, pi - 1e-5, pi}) {
    CAPTURE(angle);
    auto const pair = pair_at(angle, 2.0, 0.25);
    CHECK(std::fabs(measured_angle(pair) - angle_of(pair)) < 2.5e-7);
  }
}

TEST_CASE("the merged direction divides the angle by the share", "[host]") {
  for (double angle : {1e-6, 9e-5, 1.1e-4, 1e-3, 0.1, 1.0, 2.0, 3.0, pi - 0.06}) {
    for (float share : {0.5F, 0.6F}) {
      CAPTURE(angle, share);
      auto const pair = pair_at(angle, 3.0, 0.5);
      auto const restored = merge_and_restore(slerp_merger<float>{share}, pair);
      CHECK(std::fabs(angle_of({restored.first, pair.first}) - share * angle) < 1e-5);
      CHECK(std::fabs(angle_of({restored.second, pair.second}) - (1 - share) * angle) < 1e-5);
    }
  }
}

TEST_CASE("restored vectors have their own lengths", "[host]") {
  for (double angle : {0.0, 1e-4, 1.0, 3.0, pi}) {
    CAPTURE(angle);
    auto const restored = merge_and_restore(slerp_merger<float>{}, pair_at(angle, 3.0, 0.5));
    CHECK(tessera::testing::detail::norm(restored.first) == Approx(3.0).epsilon(1e-5));
    CHECK(tessera::testing::detail::norm(restored.second) == Approx(0.5).epsilon(1e-5));
  }
}

TEST_CASE("nearly opposite vectors take the second direction", "[host]") {
  for (double angle : {pi - 0.04, pi - 1e-4, pi}) {
    auto const pair = pair_at(angle, 1.0, 2.0);
    auto const restored = merge_and_restore(slerp_merger<float>{}, pair);
    CHECK(angle_of({restored.second, pair.second}) < 1e-6);
    CHECK(angle_of({restored.first, pair.second}) < 1e-6);
  }
}

TEST_CASE("a rotation of both vectors, as rotary embeddings are, rotates the merged one and what is restored",
          "[host]") {
  auto const turned = [](std::vector<float> const& vector, double position) {
    std::vector<float> made = vector;
    for (std::size_t c = 0; c < width / 2; ++c) {
      double const angle = position * std::pow(1e4, -2.0 * static_cast<double>(c) / static_cast<double>(width));
      double const x = vector[c];
      double const y = vector[c + width / 2];
      made[c] = static_cast<float>(std::cos(angle) * x - std::sin(angle) * y);
      made[c + width / 2] = static_cast<float>(std::sin(angle) * x + std::cos(angle) * y);
    }
    return made;
  };
  for (double angle : {1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 3.0}) {
    for (double position : {1.0, 77.0, 4095.0, 131071.0}) {
      for (float share : {0.5F, 0.6F, 1.0F}) {
        CAPTURE(angle, position, share);
        auto const pair = pair_at(angle, 3.0, 0.5);
        auto const plain = merge_and_restore(slerp_merger<float>{share}, pair);
        auto const found = merge_and_restore(slerp_merger<float>{share},
                                             {turned(pair.first, position), turned(pair.second, position)});
        CHECK(error_of(found.first, turned(plain.first, position)) < 2e-6);
        CHECK(error_of(found.second, turned(plain.second, position)) < 2e-6);
      }
    }
  }
}

TEST_CASE("a vector of zeros leaves the direction to its partner", "[host]") {
  auto const pair = pair_at(1.0, 3.0, 0.5);
  std::vector<float> const zeros(width, 0.0F);
  auto const restored = merge_and_restore(slerp_merger<float>{}, {zeros, pair.second});
  CHECK(restored.first == zeros);
  CHECK(tessera::testing::detail::is_near(pair.second, restored.second, 1e-6));
}

TEST_CASE("the share that lengths choose is that of the longer vector", "[host]") {
  for (double ratio : {0.5, 1.0, 1.22, 3.0}) {
    auto const pair = pair_at(0.7, 2.0, 2.0 * ratio);
    auto const restored = merge_and_restore(tessera::norm_weighted_slerp_merger<float>{}, pair);
    double const share = ratio * ratio / (1 + ratio * ratio);
    CAPTURE(ratio);
    CHECK(std::fabs(angle_of({restored.first, pair.first}) - share * 0.7) < 1e-6);
    CHECK(std::fabs(angle_of({restored.second, pair.second}) - (1 - share) * 0.7) < 1e-6);
    CHECK(tessera::testing::detail::norm(restored.second) == Approx(2.0 * ratio).epsilon(1e-6));
  }
  CHECK(tessera::testing::check_laws<tessera::norm_weighted_slerp_merger<float>>({pair_at(1.0, 1.0, 3.0)}, 1e-6)
            .text()
            .empty());
}

TEST_CASE("vectors longer than the largest float stay finite, and infinities do not hide", "[host]") {
  std::vector<float> const long_one(width, 3e38F);
  auto const restored = merge_and_restore(slerp_merger<float>{}, {long_one, long_one});
  CHECK(tessera::testing::detail::all_finite(restored));
  std::vector<float> with_infinity(width, 1.0F);
  with_infinity[3] = INFINITY;
  CHECK(std::isnan(merge_and_restore(slerp_merger<float>{}, {with_infinity, long_one}).first[0]));
}
