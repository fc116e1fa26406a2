// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera::testing;

namespace {

template <class Generator>
std::vector<double> draw(Generator const& generator, std::uint64_t seed, std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = generator.value(seed, i);
  }
  return values;
}

/// Kolmogorov's distance between a sample and a distribution function.
template <class Distribution>
double distance(std::vector<double> sample, Distribution const& below) {
  std::sort(sample.begin(), sample.end());
  double const n = static_cast<double>(sample.size());
  double worst = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    double const p = below(sample[i]);
    worst = std::max({worst, std::fabs(p - static_cast<double>(i) / n), std::fabs(p - static_cast<double>(i + 1) / n)});
  }
  return worst;
}

constexpr std::size_t count = 100'000;
constexpr double tolerance = 1.95 / 316.2;  // a true sample of 100,000 is farther away once in a thousand

}  // namespace

TEST_CASE("the hash continues the published splitmix64 sequence", "[host]") {
  CHECK(hash(1234567, 0) == 6457827717110365317ULL);
  CHECK(hash(1234567, 1) == 3203168211198807973ULL);
  CHECK(hash(1234567, 2) == 9817491932198370423ULL);
}

TEST_CASE("a generated value is a constant expression of its seed and index", "[host]") {
  constexpr float g = gauss{.sigma = 0.02}.value(7, 1000);
  static_assert(g == gauss{.sigma = 0.02}.value(7, 1000));
  static_assert(g != gauss{.sigma = 0.02}.value(8, 1000) && g != gauss{.sigma = 0.02}.value(7, 1001));
  CHECK(gauss{.sigma = 0.02}.value(7, 1000) == g);
}

TEST_CASE("the generators' own elementary functions agree with the standard library's", "[host]") {
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    double const u = detail::unit(hash(3, i));
    CHECK(detail::logarithm(u) == Approx(std::log(u)).epsilon(1e-14));
    CHECK(detail::square_root(u * 1e9) == Approx(std::sqrt(u * 1e9)).epsilon(1e-15));
    CHECK(detail::exponential(80 * u - 40) == Approx(std::exp(80 * u - 40)).epsilon(1e-13));
    CHECK(std::fabs(detail::cosine_of_turns(u) - std::cos(2 * 3.14159265358979323846 * u)) < 2e-15);
  }
  CHECK(detail::square_root(0) == 0);
  CHECK(detail::logarithm(0x1p-54) == Approx(-54 * std::log(2.0)).epsilon(1e-15));
}

TEST_CASE("gauss is normally distributed with the standard deviation it names", "[host]") {
  auto const normal = [](double x) { return 0.5 * std::erfc(-x / 0.02 / std::sqrt(2.0)); };
  CHECK(distance(draw(gauss{.sigma = 0.02}, 1, count), normal) < tolerance);
  CHECK(distance(draw(gauss{.sigma = 0.021}, 1, count), normal) > tolerance);
}

TEST_CASE("laplace has the distribution it names", "[host]") {
  auto const below = [](double x) { return x < 0 ? 0.5 * std::exp(x / 3) : 1 - 0.5 * std::exp(-x / 3); };
  CHECK(distance(draw(laplace{.scale = 3}, 2, count), below) < tolerance);
}

TEST_CASE("student_t has the distribution it names at two and at four degrees of freedom", "[host]") {
  auto const two = [](double t) { return 0.5 + t / (2 * std::sqrt(2 + t * t)); };
  auto const four = [](double t) {
    double const s = t / std::sqrt(4 + t * t);
    return 0.5 + 0.75 * (s - s * s * s / 3);
  };
  CHECK(distance(draw(student_t{.freedom = 2}, 3, count), two) < tolerance);
  CHECK(distance(draw(student_t{.freedom = 4}, 4, count), four) < tolerance);
  CHECK(distance(draw(student_t{.freedom = 4}, 4, count), two) > tolerance);
}

TEST_CASE("uniform stays inside its bounds and fills them evenly", "[host]") {
  auto const values = draw(uniform{.low = -2, .high = 6}, 5, count);
  CHECK(*std::min_element(values.begin(), values.end()) >= -2);
  CHECK(*std::max_element(values.begin(), values.end()) <= 6);
  CHECK(distance(values, [](double x) { return (x + 2) / 8; }) < tolerance);
}

TEST_CASE("uniform_bits sets each bit about half of the time", "[host]") {
  std::vector<int> ones(32);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t const word = uniform_bits{}.value(6, i);
    for (int bit = 0; bit < 32; ++bit) {
      ones[static_cast<std::size_t>(bit)] += static_cast<int>(word >> bit & 1);
    }
  }
  for (int const n : ones) {
    CHECK(std::abs(n - static_cast<int>(count) / 2) < 800);
  }  // five standard deviations
}

TEST_CASE("a sample is the generator's value rounded to the storage type", "[host]") {
  std::vector<tessera::bfloat16> stored(1000);
  fill(gauss{.sigma = 0.02}, 9, stored.data(), stored.size());
  for (std::uint64_t i = 0; i < stored.size(); ++i) {
    float const exact = gauss{.sigma = 0.02}.value(9, i);
    CHECK(std::fabs(tessera::load(stored[i]) - exact) <= std::ldexp(std::fabs(exact), -8));
    CHECK(stored[i].bits == sample<tessera::bfloat16>(gauss{.sigma = 0.02}, 9, i).bits);
  }
}

TEST_CASE("samples of uniform_bits reach every pattern of a small type", "[host]") {
  std::vector<bool> seen(256);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    seen[tessera::to_bits(sample<tessera::float8_e4m3>(uniform_bits{}, 1, i))] = true;
  }
  CHECK(std::count(seen.begin(), seen.end(), true) == 256);
}

TEST_CASE("tokens with offsets have eight channels far from zero, of which two generators share four", "[host]") {
  offset_tokens const queries{.offset = 10.0};
  offset_tokens const keys{.offset = 14.0, .shift = 8};
  int of_queries = 0;
  int of_keys = 0;
  int shared = 0;
  for (std::uint64_t channel = 0; channel < 128; ++channel) {
    double mean = 0;
    for (std::uint64_t token = 0; token < 400; ++token) {
      mean += static_cast<double>(queries.value(3, 128 * token + channel)) / 400;
    }
    CHECK((std::fabs(mean) > 7.0) == queries.is_offset(channel));
    of_queries += queries.is_offset(channel) ? 1 : 0;
    of_keys += keys.is_offset(channel) ? 1 : 0;
    shared += queries.is_offset(channel) && keys.is_offset(channel) ? 1 : 0;
  }
  CHECK(of_queries == 8);
  CHECK(of_keys == 8);
  CHECK(shared == 4);
}

TEST_CASE("offsets of channels have their width and are the same for all tokens", "[host]") {
  offset_channels const values{.channels = 64, .fraction = 0.25, .sigma = 40.0};
  int far = 0;
  for (std::uint64_t channel = 0; channel < 64; ++channel) {
    double const first = static_cast<double>(values.value(1, channel));
    double const last = static_cast<double>(values.value(1, 64 * 99 + channel));
    CHECK(std::fabs(first - last) < 8.0);
    far += std::fabs(first) > 6.0 ? 1 : 0;
  }
  CHECK(far > 5);
  CHECK(far < 28);
}
